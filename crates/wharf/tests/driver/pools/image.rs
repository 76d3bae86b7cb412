//! Two pools in one folder, or on one filesystem.

use std::fs;

use tonic::Code;
use wharf_testkit::process::wait_for;

use super::{configure, dead::mount_xfs, fill, made_on, rows};
use crate::{
    bench::{Bench, PoolKind, needs},
    bytes::{bytes, checksum_of, write},
    codes::refused,
    running::PATIENCE,
    unshare::{shared, unshared},
};

/// An empty pool in an image would be served in place of the pool, and its volumes would be
/// unknown, or deleted unseen.
#[tokio::test(flavor = "multi_thread")]
async fn no_pool_image_takes_the_place_of_a_pool() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, pool, two) = (bench.path("driver.yaml"), bench.pool(), bench.path("two"));
    configure(&file, &[("default", pool.clone(), "")]);
    let bench = bench.config(&file);
    let driver = bench.start().await;
    let volume = made_on(&bench, &driver, "default", "a").await.unwrap();
    let kept = fill(&driver, &volume).await;
    driver.stop().await;
    let with_image = ("default", pool.clone(), ", image: 320Mi");
    configure(&file, &[with_image.clone(), ("two", two, "")]);
    let driver = bench.start().await;
    for adopted in [false, true] {
        let said = refused("default", driver.delete(&volume.id).await, Code::Unavailable);
        assert!(said.contains("remove --pool-image"), "adopted: {adopted}: {said}");
        if !adopted {
            let adopt = bench.driver_command("adopt", &["default"]);
            assert!(!adopt.status.success(), "{adopt:?}");
        }
    }
    driver.stop().await;
    fs::remove_dir_all(bench.path("state")).unwrap();
    configure(&file, &[with_image]);
    let output = bench.command(&[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("remove --pool-image"), "{said}");
    assert!(!pool.join("pool.img").exists());
    configure(&file, &[("default", pool, "")]);
    let driver = bench.start().await;
    driver.bring_up(&volume).await.unwrap();
    assert_eq!(checksum_of(&volume.file("data"), super::DATA), kept);
    driver.take_down(&volume).await.unwrap();
    driver.delete(&volume.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

/// Files of a pool that somebody copied to the folder with the image.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_pools_in_one_folder_none_is_served() {
    let Some(bench) = Bench::new(PoolKind::Reflink(320)) else { return };
    let driver = bench.start().await;
    let volume = made_on(&bench, &driver, "default", "a").await.unwrap();
    driver.stop().await;
    let (identity, copied) = (bench.images().join("pool.json"), bench.pool().join("pool.json"));
    fs::copy(identity, &copied).unwrap();
    let output = bench.command(&[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("holds two pools"), "{said}");
    fs::remove_file(copied).unwrap();
    let driver = bench.start().await;
    driver.delete(&volume.id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

/// The other pool would take the space that overwritten blocks of a thick volume with a snapshot
/// need.
#[tokio::test(flavor = "multi_thread")]
async fn no_blocks_stay_shared_once_another_pool_is_on_the_filesystem() {
    if needs(&["mkfs.xfs"]).is_none() {
        return;
    }
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_xfs(&bench);
    let (root, inside) = (bench.pool(), bench.pool().join("inside"));
    let file = bench.path("driver.yaml");
    configure(&file, &[("default", root.clone(), "")]);
    let bench = bench.config(&file);
    let driver = bench.start().await;
    let volume = made_on(&bench, &driver, "default", "a").await.unwrap();
    driver.bring_up(&volume).await.unwrap();
    write(&volume.file("data"), &bytes(1, super::DATA));
    driver.snapshot("before", &volume.id).await.unwrap();
    let image = |of: &str| rows(&bench).into_iter().find(|row| row.name == of).unwrap().image;
    assert!(shared(&image("before")) > 0, "a pool with a filesystem of its own shares blocks");
    configure(&file, &[("default", root, ""), ("inside", inside, "")]);
    wait_for(PATIENCE, "blocks of its own for the snapshot", async || {
        (shared(&image("before")) == 0).then_some(())
    })
    .await
    .unwrap();
    // The same from the first moment on: the other pool's folder is there now.
    driver.snapshot("after", &volume.id).await.unwrap();
    driver.stop().await;
    let driver = bench.start().await;
    driver.snapshot("again", &volume.id).await.unwrap();
    unshared(&bench).await;
    assert_eq!(shared(&image("after")) + shared(&image("again")), 0);
    driver.take_down(&volume).await.unwrap();
    driver.stop().await;
}
