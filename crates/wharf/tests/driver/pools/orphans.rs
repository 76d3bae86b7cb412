//! Volumes in use whose pool is no longer served.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tonic::Code;
use wharf_mount::{freeze, loopdev, mount, mountinfo};
use wharf_proto::csi::volume_capability::access_mode::Mode;

use super::{configured::configure, made_on, on_pool};
use crate::{
    bench::{Bench, PoolKind, loops_below, needs},
    client::{Usage, block, block_as, from_volume, map, mounted, volume},
    codes::refused,
    full::mount_pool,
    running::Running,
};

const SIZE: u64 = super::SIZE;

pub(super) fn is_mounted(path: &Path) -> bool {
    mountinfo::root_at(path).unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_pool_that_was_removed_are_taken_from_their_pods() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, one, two) = (bench.path("driver.yaml"), bench.path("one"), bench.path("two"));
    let bench = bench.config(&file);
    configure(&file, &[("default", one.clone(), ""), ("two", two.clone(), "")]);
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "two", "a").await.unwrap();
    let mut request = volume("raw", SIZE, block());
    request.parameters = map(&[("pool", "two")]);
    let raw = driver.create(request).await.unwrap().volume_id;
    let raw = Usage::new(&bench, "raw", &raw, block());
    let mut inline = Usage::new(&bench, "inline", "csi-inline", mounted(""));
    inline.staging = PathBuf::new();
    let ephemeral = (wharf_facts::context::EPHEMERAL, "true");
    let pod = bench.path("pods/pod");
    fs::create_dir(&pod).unwrap();
    inline.target = pod.join("inline");
    inline.context = map(&[ephemeral, ("size", "16Mi"), ("pool", "two")]);
    driver.bring_up(&a).await.unwrap();
    driver.bring_up(&raw).await.unwrap();
    driver.publish(&inline).await.unwrap();
    driver.kill().await;

    configure(&file, &[("default", one.clone(), "")]);
    let driver = bench.start().await;
    let forget = bench.driver_command("forget", &["two"]);
    let said = String::from_utf8_lossy(&forget.stderr).into_owned();
    assert!(!forget.status.success() && said.contains("is in use"), "{said}");
    driver.unpublish(&inline).await.unwrap();
    fs::remove_dir(&pod).unwrap();
    for usage in [&a, &raw] {
        driver.take_down(usage).await.unwrap();
        driver.take_down(usage).await.unwrap();
        assert!(!is_mounted(&usage.staging) && !usage.target.exists());
        refused("delete", driver.delete(&usage.id).await, Code::Unavailable);
    }
    driver.stop().await;
    assert_eq!(loops_below(&two), []);

    // The pool is back: its volumes are there, none is in use, and the inline one is gone with its
    // pod.
    configure(&file, &[("default", one, ""), ("two", two.clone(), "")]);
    let driver = bench.start().await;
    for usage in [&a, &raw] {
        driver.bring_up(usage).await.unwrap();
        driver.take_down(usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
    assert_eq!(loops_below(&two), []);
    assert_eq!(fs::read_dir(two.join("volumes")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_volume_is_not_unmounted_for_an_unknown_one() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let unknown = Usage::new(&bench, "unknown", "vol-unknown", mounted(""));
    fs::create_dir(&unknown.target).unwrap();
    for path in [&unknown.target, &unknown.staging] {
        let mut mount = std::process::Command::new("mount");
        assert!(mount.args(["-t", "tmpfs", "foreign"]).arg(path).status().unwrap().success());
    }
    refused("unpublish", driver.unpublish(&unknown).await, Code::Internal);
    refused("unstage", driver.unstage(&unknown).await, Code::Internal);
    assert!(is_mounted(&unknown.target) && is_mounted(&unknown.staging));
    driver.stop().await;
}

/// The numbers of loop devices whose image has a name that ends so, wherever the kernel sees it.
pub(super) fn loops_of(names: &[std::ffi::OsString]) -> Vec<PathBuf> {
    let all = loopdev::list().unwrap().into_iter().map(|status| status.loopdev.backing);
    all.filter(|backing| names.iter().any(|name| backing.ends_with(name))).collect()
}

pub(super) fn image_names(folder: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(folder.join("volumes")).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

/// A mounted volume, a block volume and an inline volume of a pod, all in use.
async fn all_kinds(bench: &Bench, driver: &Running, pool: &str) -> (Vec<Usage>, Usage) {
    let mut used = vec![made_on(bench, driver, pool, "file").await.unwrap()];
    let made = driver.create(on_pool(pool, volume("raw", SIZE, block()))).await.unwrap();
    used.push(Usage::new(bench, "raw", &made.volume_id, block()));
    for usage in &used {
        driver.bring_up(usage).await.unwrap();
    }
    let mut inline = Usage::new(bench, "inline", "csi-inline", mounted(""));
    inline.staging = PathBuf::new();
    fs::create_dir(bench.path("pods/pod")).unwrap();
    inline.target = bench.path("pods/pod/inline");
    let ephemeral = (wharf_facts::context::EPHEMERAL, "true");
    inline.context = map(&[ephemeral, ("size", "16Mi"), ("pool", pool)]);
    driver.publish(&inline).await.unwrap();
    (used, inline)
}

/// Takes an inline volume from its pod, and the pod from the node.
async fn end_pod(driver: &Running, inline: &Usage) {
    driver.unpublish(inline).await.unwrap();
    fs::remove_dir(inline.target.parent().unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_id_takes_down_nothing_of_a_served_pool() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let (used, inline) = all_kinds(&bench, &driver, "default").await;
    let loops = loops_below(&bench.pool());
    assert_eq!(loops.len(), 3);
    let short = used[0].id.split('-').nth(1).unwrap();
    for id in
        [format!("vol-{short}-{:032}", 0), format!("vol-{:08}-{:032}", 0, 0), "vol-xyz".into()]
    {
        for usage in used.iter().chain([&inline]) {
            let other = Usage { id: id.clone(), ..usage.clone() };
            refused("unpublish", driver.unpublish(&other).await, Code::Internal);
            assert!(is_mounted(&usage.target), "{id} at {:?}", usage.target);
        }
        let other = Usage { id: id.clone(), ..used[0].clone() };
        refused("unstage", driver.unstage(&other).await, Code::Internal);
        assert!(is_mounted(&other.staging), "{id}");
        assert_eq!(loops_below(&bench.pool()), loops, "{id}");
    }
    for usage in &used {
        driver.take_down(usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    end_pod(&driver, &inline).await;
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_is_published_while_an_unknown_id_is_unpublished_keeps_its_device() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let shared = block_as(Mode::SingleNodeMultiWriter);
    let made = driver.create(volume("raw", SIZE, shared.clone())).await.unwrap();
    let a = Usage::new(&bench, "a", &made.volume_id, shared);
    let b = Usage { target: bench.path("pods/b"), ..a.clone() };
    let unknown = Usage { id: format!("vol-{:08}-{:032}", 0, 0), ..a.clone() };
    driver.stage(&a).await.unwrap();
    for round in 0..50 {
        driver.publish(&a).await.unwrap();
        let (_, published) = tokio::join!(driver.unpublish(&unknown), driver.publish(&b));
        published.unwrap();
        let shown = mountinfo::root_at(&b.target).unwrap().and_then(|root| root.node);
        let (device, _) = loops_below(&bench.pool()).remove(0);
        let number = loopdev::device_number(&device.path).unwrap();
        assert_eq!(shown, Some(number), "round {round}");
        driver.unpublish(&a).await.unwrap();
        driver.unpublish(&b).await.unwrap();
    }
    driver.unstage(&a).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_pool_whose_mount_was_detached_are_taken_from_their_pods() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let driver = bench.start().await;
    let (used, inline) = all_kinds(&bench, &driver, "default").await;
    let names = image_names(&bench.pool());
    driver.stop().await;
    mount::lazy_unmount(&bench.pool()).unwrap();
    assert_eq!(loops_of(&names).len(), 3);

    let driver = bench.start().await;
    // A call for one volume takes nothing from another one, also while neither is known.
    let other = Usage { id: used[1].id.clone(), ..used[0].clone() };
    refused("of another volume", driver.unpublish(&other).await, Code::Internal);
    assert!(is_mounted(&used[0].target));
    end_pod(&driver, &inline).await;
    for usage in &used {
        driver.take_down(usage).await.unwrap();
        driver.take_down(usage).await.unwrap();
        assert!(!is_mounted(&usage.staging) && !usage.target.exists());
    }
    assert_eq!(loops_of(&names), Vec::<PathBuf>::new(), "a loop device is left");

    mount_pool(&bench);
    super::is_served(&driver).await;
    for usage in &used {
        driver.bring_up(usage).await.unwrap();
        driver.take_down(usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
    assert_eq!(image_names(&bench.pool()), Vec::<std::ffi::OsString>::new());
}

/// As in a container: the pool is mounted in the driver's own mount namespace, and gone with it.
#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_pool_that_only_an_earlier_container_saw_are_taken_from_their_pods() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let real = bench.path("real");
    fs::create_dir(&real).unwrap();
    fs::create_dir(bench.pool()).unwrap();
    for (folder, propagation) in
        [("stage", "--make-shared"), ("pods", "--make-shared"), ("pool", "--make-private")]
    {
        let folder = bench.path(folder);
        mount::bind(&folder, &folder, false).unwrap();
        let mut change = std::process::Command::new("mount");
        assert!(change.arg(propagation).arg(&folder).status().unwrap().success());
    }
    let contained = |script: &str| {
        let driver = bench.command(&[]);
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--propagation", "unchanged", "sh", "-ec", script]);
        command.arg("sh").args([&real, &bench.pool()]).arg(driver.get_program());
        command.args(driver.get_args());
        command
    };
    let with_pool = contained(r#"mount --bind "$1" "$2"; shift 2; exec "$@""#);
    let driver = Running::start(&with_pool, &bench.path(""), &bench.socket()).await.unwrap();
    let (used, inline) = all_kinds(&bench, &driver, "default").await;
    let names = image_names(&real);
    driver.stop().await;
    assert_eq!(loops_of(&names).len(), 3);

    let without = contained(r#"shift 2; exec "$@""#);
    let driver = Running::start(&without, &bench.path(""), &bench.socket()).await.unwrap();
    refused("stage", driver.stage(&used[0]).await, Code::Unavailable);
    end_pod(&driver, &inline).await;
    for usage in &used {
        driver.take_down(usage).await.unwrap();
        assert!(!is_mounted(&usage.staging) && !usage.target.exists());
    }
    assert_eq!(loops_of(&names), Vec::<PathBuf>::new(), "a loop device is left");
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_a_volume_in_use_is_not_forgotten_although_its_mount_was_detached() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    mount_pool(&bench);
    let (file, one) = (bench.path("driver.yaml"), bench.path("one"));
    let bench = bench.config(&file);
    configure(&file, &[("default", one.clone(), ""), ("two", bench.pool(), "")]);
    let driver = bench.start().await;
    let a = made_on(&bench, &driver, "two", "a").await.unwrap();
    driver.bring_up(&a).await.unwrap();
    driver.stop().await;
    mount::lazy_unmount(&bench.pool()).unwrap();
    configure(&file, &[("default", one, "")]);
    let driver = bench.start().await;
    let forget = bench.driver_command("forget", &["two"]);
    let said = String::from_utf8_lossy(&forget.stderr).into_owned();
    assert!(!forget.status.success() && said.contains("is in use"), "{said}");
    driver.take_down(&a).await.unwrap();
    refused("delete", driver.delete(&a.id).await, Code::Unavailable);
    let forget = bench.driver_command("forget", &["two"]);
    assert!(forget.status.success(), "{forget:?}");
    driver.delete(&a.id).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_a_kill_left_frozen_goes_on_although_its_pool_is_not_served() {
    if needs(&["fsfreeze"]).is_none() {
        return;
    }
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let (file, one, two) = (bench.path("driver.yaml"), bench.path("one"), bench.path("two"));
    let bench = bench.config(&file);
    configure(&file, &[("default", one.clone(), ""), ("two", two, "")]);
    let mut driver = bench.start_with(&["--fault", "kill:CloneFrozen"]).await;
    let a = made_on(&bench, &driver, "two", "a").await.unwrap();
    driver.bring_up(&a).await.unwrap();
    let mut clone = on_pool("two", volume("clone", SIZE, mounted("")));
    clone.volume_content_source = from_volume(&a.id);
    driver.create(clone).await.unwrap_err();
    driver.killed().await.unwrap();
    freeze::freeze(&a.staging).expect_err("the kill left it frozen");

    configure(&file, &[("default", one, "")]);
    let driver = bench.start().await;
    let frozen = freeze::freeze(&a.staging).expect("thawed by the start");
    frozen.thaw().unwrap();
    // Whoever froze it since: nobody thaws what is unmounted.
    let freeze = std::process::Command::new("fsfreeze").arg("--freeze").arg(&a.staging).status();
    assert!(freeze.unwrap().success());
    driver.take_down(&a).await.unwrap();
    assert!(!is_mounted(&a.staging) && !a.target.exists());
    assert_eq!(loops_below(&bench.path("two")), []);
    driver.stop().await;
}
