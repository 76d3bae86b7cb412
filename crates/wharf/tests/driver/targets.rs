//! Target paths that the driver must not use: refused before anything is created or recorded.

use std::{path::Path, process::Command};

use tonic::Code;
use wharf_proto::csi;

use crate::{
    bench::{Bench, PoolKind},
    client::{Usage, block, mounted},
    codes::refused,
    devices::new_volume,
    inline::inline,
};

/// Targets that nothing can be published at, each for a filesystem (false) or a block device
/// (true).
const BAD: [(&str, bool); 7] = [
    ("a foreign mount", false),
    ("a file with content", false),
    ("an empty file", false),
    ("a folder with content", false),
    ("a foreign mount", true),
    ("a file with content", true),
    ("a folder", true),
];

fn prepare(target: &Path, what: &str) {
    match what {
        "a file with content" => std::fs::write(target, "content").unwrap(),
        "an empty file" => std::fs::write(target, "").unwrap(),
        _ => std::fs::create_dir(target).unwrap(),
    }
    match what {
        "a folder with content" => std::fs::write(target.join("file"), "content").unwrap(),
        "a foreign mount" => {
            let mut mount = Command::new("mount");
            assert!(mount.args(["-t", "tmpfs", "foreign"]).arg(target).status().unwrap().success());
        }
        _ => {}
    }
}

fn clear(target: &Path) {
    let _ = wharf_mount::mount::unmount(target);
    match target.is_dir() {
        true => std::fs::remove_dir_all(target).unwrap(),
        false => std::fs::remove_file(target).unwrap(),
    }
}

fn capability(is_block: bool) -> csi::VolumeCapability {
    if is_block { block() } else { mounted("ext4") }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_at_a_target_of_others_is_refused_and_leaves_nothing() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    for (what, is_block) in BAD {
        let usage = inline(&bench, "inline", "pod", capability(is_block), "16Mi");
        prepare(&usage.target, what);
        let said = refused(what, driver.publish(&usage).await, Code::FailedPrecondition);
        assert!(said.contains(usage.target.to_str().unwrap()), "{what}: {said}");
        assert_eq!(bench.rows(), Vec::new(), "{what}");
        assert!(usage.target.exists(), "{what}: it is gone");
        clear(&usage.target);
        bench.assert_empty();
        driver.publish(&usage).await.unwrap();
        driver.unpublish(&usage).await.unwrap();
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_not_published_at_a_target_of_others() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    for (number, (what, is_block)) in BAD.into_iter().enumerate() {
        let name = format!("volume-{number}");
        let usage: Usage = new_volume(&bench, &driver, &name, capability(is_block)).await;
        driver.stage(&usage).await.unwrap();
        prepare(&usage.target, what);
        let said = refused(what, driver.publish(&usage).await, Code::FailedPrecondition);
        assert!(said.contains(usage.target.to_str().unwrap()), "{what}: {said}");
        // No publication is recorded, so that the volume can be unstaged.
        driver.unstage(&usage).await.unwrap();
        clear(&usage.target);
        driver.bring_up(&usage).await.unwrap();
        driver.publish(&usage).await.unwrap();
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_not_staged_over_what_is_in_a_folder_nor_published_where_it_is_staged() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let mut usage = new_volume(&bench, &driver, "a", mounted("ext4")).await;
    let precious = usage.staging.join("precious");
    std::fs::write(&precious, "content").unwrap();
    let text = refused("a full folder", driver.stage(&usage).await, Code::FailedPrecondition);
    assert!(text.contains("is not an empty folder"), "{text}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "content");
    std::fs::remove_file(precious).unwrap();
    driver.stage(&usage).await.unwrap();
    let target = std::mem::replace(&mut usage.target, usage.staging.clone());
    let text = refused("one path", driver.publish(&usage).await, Code::InvalidArgument);
    assert!(text.contains("target_path"), "{text}");
    usage.target = target;
    driver.publish(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}
