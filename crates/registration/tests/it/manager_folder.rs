//! Faults of the folder itself.

use std::{fs, os::unix::net::UnixListener};

use wharf_registration::manager::EventKind;

use crate::{
    recording::Step::{Deregister, Register, Validate},
    support::Fixture,
};

#[tokio::test]
async fn a_folder_deleted_and_made_again_is_watched_again() {
    let mut fixture = Fixture::start().await;
    let old = fixture.registered("old.sock", "old").await;
    for _ in 0..3 {
        fs::remove_dir_all(fixture.root()).unwrap();
        fixture.settled_with(&[]).await;
        fs::create_dir(fixture.root()).unwrap();
        let new = fixture.registered("new.sock", "new").await;
        fixture.settled_with(&["new"]).await;
        new.stop().await;
        fixture.settled_with(&[]).await;
    }
    assert_eq!(fixture.handler.steps(old.path()), [Validate, Register, Deregister]);
}

#[tokio::test]
async fn a_folder_moved_away_and_back_is_a_folder_that_went_and_came() {
    let mut fixture = Fixture::start().await;
    let plugin = fixture.registered("a.sock", "a").await;
    let away = fixture.root().with_file_name("away");
    fs::rename(fixture.root(), &away).unwrap();
    fixture.settled_with(&[]).await;
    assert_eq!(fixture.handler.steps(plugin.path()), [Validate, Register, Deregister]);
    fs::rename(&away, fixture.root()).unwrap();
    fixture.settled_with(&["a"]).await;
    plugin.wait_for(|calls| calls.verdicts.len() == 2).await;
}

#[tokio::test]
async fn a_socket_renamed_within_the_folder_is_another_plugin() {
    let mut fixture = Fixture::start().await;
    let plugin = fixture.registered("a.sock", "a").await;
    fs::create_dir(fixture.path("sub")).unwrap();
    fs::rename(plugin.path(), fixture.path("sub/b.sock")).unwrap();
    fixture.event(plugin.path(), &EventKind::Gone).await;
    fixture.settled_with(&["a"]).await;
    assert!(fixture.view("sub/b.sock").is_some());
}

/// This thread is the whole runtime, so nobody reads events while it makes them.
#[tokio::test]
async fn events_that_the_kernel_drops_lose_no_plugin() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut fixture = Fixture::start().await;
    let early = fixture.registered("early.sock", "early").await;
    let gone = fixture.registered("gone.sock", "gone").await;
    let noise = fixture.path("noise.sock");
    for _ in 0..limit / 2 + 100 {
        drop(UnixListener::bind(&noise).unwrap());
        fs::remove_file(&noise).unwrap();
    }
    fs::remove_file(gone.path()).unwrap();
    let late = fixture.registered("late.sock", "late").await;
    fixture.settled_with(&["early", "late"]).await;
    assert_eq!(fixture.handler.steps(early.path()), [Validate, Register]);
    assert_eq!(fixture.handler.steps(gone.path()), [Validate, Register, Deregister]);
    assert_eq!(fixture.handler.steps(late.path()), [Validate, Register]);
}
