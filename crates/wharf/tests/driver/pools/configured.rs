//! A configuration file of pools that changes while the driver runs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tonic::Code;
use wharf_testkit::process::wait_for;

use super::{SIZE, fill, made_on};
use crate::{
    bench::{Bench, PoolKind, WHARF, loops_below, mounts_below, needs},
    bytes::checksum_of,
    client::{mounted, text, volume},
    codes::refused,
    running::{PATIENCE, Running},
};

/// Writes the file anew, as an editor does: under another name first.
pub(crate) fn configure(file: &Path, pools: &[(&str, PathBuf, &str)]) {
    let entry = |(name, folder, more): &(&str, PathBuf, &str)| {
        format!("- {{name: {name}, folder: {}{more}}}\n", text(folder))
    };
    let entries: String = pools.iter().map(entry).collect();
    let fresh = file.with_extension("new");
    fs::write(&fresh, format!("pools:\n{entries}")).unwrap();
    fs::rename(&fresh, file).unwrap();
}

/// Waits until a volume can, or cannot, be made on a pool.
pub(super) async fn becomes(bench: &Bench, driver: &Running, pool: &str, expected: Code) {
    wait_for(PATIENCE, &format!("{expected:?} on pool {pool}"), async || {
        let code = match made_on(bench, driver, pool, "probe").await {
            Ok(probe) => {
                driver.delete(&probe.id).await.unwrap();
                Code::Ok
            }
            Err(status) => status.code(),
        };
        (code == expected).then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_come_are_drained_and_go_without_a_restart() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, one, two) = (bench.path("driver.yaml"), bench.path("one"), bench.path("two"));
    let bench = bench.config(&file);
    configure(&file, &[("default", one.clone(), "")]);
    let driver = bench.start().await;
    let a = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    becomes(&bench, &driver, "two", Code::InvalidArgument).await;

    configure(&file, &[("default", one.clone(), ""), ("two", two.clone(), "")]);
    becomes(&bench, &driver, "two", Code::Ok).await;
    let b = made_on(&bench, &driver, "two", "b").await.unwrap();

    configure(&file, &[("default", one.clone(), ""), ("two", two.clone(), ", drain: true")]);
    becomes(&bench, &driver, "two", Code::ResourceExhausted).await;
    let capacity = driver.capacity_of(&[("pool", "two")]).await.unwrap();
    assert_eq!(capacity.available_capacity, 0);
    // A volume that exists is served as before.
    fill(&driver, &b).await;
    driver.expand(&b.id, 2 * SIZE).await.unwrap();

    // A file that is wrong changes nothing.
    fs::write(&file, "pools: [{name: default}]").unwrap();
    wait_for(PATIENCE, "the refusal", async || {
        driver.log().contains("failed to apply configuration").then_some(())
    })
    .await
    .unwrap();
    driver.create(volume("c", SIZE, mounted(""))).await.unwrap();

    // A pool with a volume in use stays until that is unstaged.
    driver.bring_up(&b).await.unwrap();
    configure(&file, &[("default", one, "")]);
    becomes(&bench, &driver, "two", Code::InvalidArgument).await;
    driver.take_down(&b).await.unwrap();
    wait_for(PATIENCE, "the pool to be closed", async || {
        driver.log().contains("closing pool").then_some(())
    })
    .await
    .unwrap();
    let refusal = refused("a volume of it", driver.delete(&b.id).await, Code::Unavailable);
    assert!(refusal.contains("not configured"), "{refusal}");
    driver.delete(&a).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_of_a_pool_that_was_removed_is_unmounted() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    if needs(&["mkfs.xfs"]).is_none() {
        return;
    }
    let (file, one, two) = (bench.path("driver.yaml"), bench.path("one"), bench.path("two"));
    let bench = bench.config(&file);
    let image = || ("two", two.clone(), ", image: 320Mi");
    configure(&file, &[("default", one.clone(), ""), image()]);
    let driver = bench.start().await;
    let b = made_on(&bench, &driver, "two", "b").await.unwrap();
    let sum = fill(&driver, &b).await;
    assert_eq!(mounts_below(&two).len(), 1);

    configure(&file, &[("default", one.clone(), "")]);
    wait_for(PATIENCE, "the image to be unmounted", async || {
        let is_gone = mounts_below(&two).is_empty() && loops_below(&two).is_empty();
        is_gone.then_some(())
    })
    .await
    .unwrap();
    refused("a volume of it", driver.delete(&b.id).await, Code::Unavailable);

    configure(&file, &[("default", one, ""), image()]);
    becomes(&bench, &driver, "two", Code::Ok).await;
    driver.bring_up(&b).await.unwrap();
    assert_eq!(checksum_of(&b.file("data"), super::DATA), sum);
    driver.take_down(&b).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_that_is_swapped_takes_effect() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    // As the kubelet writes it: a link through a hidden link to a hidden folder.
    let mounted_at = bench.path("config");
    let versions = ["..first", "..second"].map(|name| mounted_at.join(name));
    for version in &versions {
        fs::create_dir_all(version).unwrap();
    }
    let (one, two) = (bench.path("one"), bench.path("two"));
    configure(&versions[0].join("driver.yaml"), &[("default", one.clone(), "")]);
    configure(&versions[1].join("driver.yaml"), &[("default", one, ""), ("two", two, "")]);
    let link = |to: &str, at: &str| {
        std::os::unix::fs::symlink(to, mounted_at.join(at)).unwrap();
    };
    link("..first", "..data");
    link("..data/driver.yaml", "driver.yaml");
    let bench = bench.config(&mounted_at.join("driver.yaml"));
    let driver = bench.start().await;
    becomes(&bench, &driver, "default", Code::Ok).await;
    link("..second", "..data_tmp");
    fs::rename(mounted_at.join("..data_tmp"), mounted_at.join("..data")).unwrap();
    becomes(&bench, &driver, "two", Code::Ok).await;
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_by_hand_outlives_a_restart_and_is_taken_back_by_hand() {
    let Some(bench) = super::two_pools(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let output = bench.driver_command("drain", &["fast"]);
    assert!(output.status.success(), "{output:?}");
    becomes(&bench, &driver, "fast", Code::ResourceExhausted).await;
    becomes(&bench, &driver, "default", Code::Ok).await;
    driver.kill().await;
    let driver = bench.start().await;
    becomes(&bench, &driver, "fast", Code::ResourceExhausted).await;
    let usage = bench.driver_command("usage", &["--pool", "fast"]);
    let shown = String::from_utf8(usage.stdout).unwrap();
    assert!(shown.contains("takes no new volumes"), "{shown}");
    let nowhere = bench.driver_command("usage", &["--pool", "nowhere"]);
    let said = String::from_utf8(nowhere.stderr).unwrap();
    assert!(said.contains("\"nowhere\"") && said.contains("pool usage"), "{said}");
    let output = bench.driver_command("drain", &["fast", "--off"]);
    assert!(output.status.success(), "{output:?}");
    becomes(&bench, &driver, "fast", Code::Ok).await;
    driver.stop().await;
}

#[test]
fn a_file_is_checked_before_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driver.yaml");
    let check = || {
        let mut command = std::process::Command::new(WHARF);
        command.args(["driver", "check-config"]).arg(&file).output().unwrap()
    };
    fs::write(&file, "pools: [{name: fast, folder: /mnt/fast, kinds: [thin]}]").unwrap();
    let output = check();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "fast: /mnt/fast, thin\n");
    fs::write(&file, "pools: [{name: fast, folder: /mnt/fast, kinds: [fat]}]").unwrap();
    let output = check();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("driver.yaml") && said.contains("fat"), "{said}");
    fs::write(&file, "pools: [{name: fast, folder: /mnt/fast, image: 0}]").unwrap();
    let said = String::from_utf8(check().stderr).unwrap();
    assert!(said.contains("pools[0].image: expected at least 300Mi"), "{said}");
}

/// The folder of a pool changes, and its name: it is the same pool.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_moved_or_renamed_is_the_same_pool() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, old, new) = (bench.path("driver.yaml"), bench.path("old"), bench.path("new"));
    let bench = bench.config(&file);
    configure(&file, &[("default", old.clone(), "")]);
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "default", "a").await.unwrap();
    let gone = made_on(&bench, &driver, "default", "gone").await.unwrap();
    driver.delete(&gone.id).await.unwrap();
    driver.bring_up(&a).await.unwrap();

    // Both paths lead to the pool, and a volume of it is in use.
    std::os::unix::fs::symlink(&old, &new).unwrap();
    configure(&file, &[("default", new.clone(), "")]);
    becomes(&bench, &driver, "default", Code::ResourceExhausted).await;
    driver.take_down(&a).await.unwrap();
    becomes(&bench, &driver, "default", Code::Ok).await;
    fill(&driver, &a).await;

    configure(&file, &[("renamed", new, "")]);
    becomes(&bench, &driver, "renamed", Code::Ok).await;
    fill(&driver, &a).await;
    let log = driver.log();
    assert!(!log.contains("in use by another process"), "the driver kept itself out: {log}");
    let shown = String::from_utf8(bench.driver_command("usage", &[]).stdout).unwrap();
    assert!(!shown.contains("pool default"), "the old name is left: {shown}");
    // An id that is gone is gone, also under the new name.
    driver.delete(&gone.id).await.unwrap();
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
    let driver = bench.start().await;
    driver.delete(&gone.id).await.unwrap();
    driver.stop().await;
}
