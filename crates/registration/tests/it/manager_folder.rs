//! The folder itself in trouble.

use std::{fs, os::unix::net::UnixListener};

use wharf_registration::manager::EventKind;

use crate::{
    recording::Step::{Deregister, Register, Validate},
    support::Bench,
};

#[tokio::test]
async fn a_folder_deleted_and_made_again_is_watched_again() {
    let mut bench = Bench::start().await;
    let old = bench.registered("old.sock", "old").await;
    for _ in 0..3 {
        fs::remove_dir_all(bench.root()).unwrap();
        bench.settled_with(&[]).await;
        fs::create_dir(bench.root()).unwrap();
        let new = bench.registered("new.sock", "new").await;
        bench.settled_with(&["new"]).await;
        new.stop().await;
        bench.settled_with(&[]).await;
    }
    assert_eq!(bench.handler.steps(old.path()), [Validate, Register, Deregister]);
}

#[tokio::test]
async fn a_folder_moved_away_and_back_is_a_folder_that_went_and_came() {
    let mut bench = Bench::start().await;
    let plugin = bench.registered("a.sock", "a").await;
    let away = bench.root().with_file_name("away");
    fs::rename(bench.root(), &away).unwrap();
    bench.settled_with(&[]).await;
    assert_eq!(bench.handler.steps(plugin.path()), [Validate, Register, Deregister]);
    fs::rename(&away, bench.root()).unwrap();
    bench.settled_with(&["a"]).await;
    plugin.wait_for(|calls| calls.verdicts.len() == 2).await;
}

#[tokio::test]
async fn a_socket_renamed_within_the_folder_is_another_plugin() {
    let mut bench = Bench::start().await;
    let plugin = bench.registered("a.sock", "a").await;
    fs::create_dir(bench.path("sub")).unwrap();
    fs::rename(plugin.path(), bench.path("sub/b.sock")).unwrap();
    bench.event(plugin.path(), &EventKind::Gone).await;
    bench.settled_with(&["a"]).await;
    assert!(bench.view("sub/b.sock").is_some());
}

/// This thread is the whole runtime: nobody reads events while it makes them.
#[tokio::test]
async fn events_that_the_kernel_drops_lose_no_plugin() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut bench = Bench::start().await;
    let early = bench.registered("early.sock", "early").await;
    let gone = bench.registered("gone.sock", "gone").await;
    let noise = bench.path("noise.sock");
    for _ in 0..limit / 2 + 100 {
        drop(UnixListener::bind(&noise).unwrap());
        fs::remove_file(&noise).unwrap();
    }
    fs::remove_file(gone.path()).unwrap();
    let late = bench.registered("late.sock", "late").await;
    bench.settled_with(&["early", "late"]).await;
    assert_eq!(bench.handler.steps(early.path()), [Validate, Register]);
    assert_eq!(bench.handler.steps(gone.path()), [Validate, Register, Deregister]);
    assert_eq!(bench.handler.steps(late.path()), [Validate, Register]);
}
