//! Notes in the state folder: a damaged one affects only its own pool, and old ones are removed.

use std::{fs, process::Output};

use tonic::Code;

use super::{fill, made_on, readyz, two_pools};
use crate::{
    bench::{Bench, PoolKind},
    codes::refused,
    devices::Stranger,
};

fn said(output: &Output) -> String {
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    texts.concat()
}

/// Damages the note of a pool, as a full disk or a bad sector does.
fn damage(bench: &Bench, pool: &str) {
    let notes = bench.path("state").join("local.csi.wharf").join("pools");
    fs::write(notes.join(format!("{pool}.json")), "{\"pool\":").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_note_keeps_only_its_own_pool_from_being_served() {
    let Some(bench) = two_pools(PoolKind::Copy) else { return };
    let bench = bench.flag("--http-endpoint", "127.0.0.1:0");
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    let b = made_on(&bench, &driver, "fast", "b").await.unwrap();
    let kept = fill(&driver, &b).await;
    driver.kill().await;
    damage(&bench, "fast");

    let driver = bench.start().await;
    let (code, text) = readyz(&driver);
    assert_eq!(code, 503);
    assert!(text.contains("fast.json") && text.contains("pool adopt fast"), "{text}");
    fill(&driver, &a).await;
    refused("a volume of the pool", driver.delete(&b.id).await, Code::Unavailable);
    let check = bench.driver_command("check", &[]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    assert!(said(&check).contains("pool fast") && said(&check).contains("fast.json"), "{check:?}");
    let adopted = bench.driver_command("adopt", &["fast"]);
    assert!(said(&adopted).contains("pool fast is now the pool that was there"), "{adopted:?}");
    driver.bring_up(&b).await.unwrap();
    assert_eq!(crate::bytes::checksum_of(&b.file("data"), super::DATA), kept);
    driver.take_down(&b).await.unwrap();
    let check = bench.driver_command("check", &[]);
    assert!(check.status.success(), "{check:?}");
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_note_of_a_pool_that_is_not_configured_is_forgotten_by_a_person_only() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    driver.kill().await;
    damage(&bench, "lost");

    let driver = bench.start().await;
    fill(&driver, &a).await;
    // The volume may be on the pool of which nothing is known.
    let text = refused("an id of no pool", driver.delete("vol-1").await, Code::Unavailable);
    assert!(text.contains("lost.json") && text.contains("pool forget lost"), "{text}");
    let forgotten = bench.driver_command("forget", &["lost"]);
    assert!(forgotten.status.success(), "{forgotten:?}");
    driver.delete("vol-1").await.unwrap();
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
    // Without a driver the disk is read.
    damage(&bench, "lost");
    let listed = bench.driver_command("ls", &["--pool", "default"]);
    assert!(listed.status.success(), "{listed:?}");
    let listed = bench.driver_command("ls", &[]);
    assert!(!listed.status.success() && said(&listed).contains("lost.json"), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_note_of_a_volume_that_others_held_is_removed_with_the_volume() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let notes = bench.path("state").join("local.csi.wharf").join("attached");
    let all = || -> Vec<_> {
        let entries = fs::read_dir(&notes).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    driver.bring_up(&a).await.unwrap();
    let stranger = Stranger::start(&bench).await;
    driver.take_down(&a).await.unwrap();
    let kept = all();
    assert_eq!(kept.len(), 1, "others still hold the device: {kept:?}");
    let text = fs::read(&kept[0]).unwrap();
    stranger.end().await;
    driver.delete(&a.id).await.unwrap();
    assert_eq!(all(), Vec::<std::path::PathBuf>::new());
    driver.kill().await;

    // As a release left it that did not remove it, beside what is no note.
    fs::write(&kept[0], text).unwrap();
    fs::create_dir(notes.join("folder.json")).unwrap();
    let driver = bench.start().await;
    assert_eq!(all(), Vec::<std::path::PathBuf>::new());
    driver.stop().await;
}
