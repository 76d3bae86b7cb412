//! Only root can read the files of a pool, whatever the umask.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    bench::{Bench, MIB, PoolKind},
    client::{Usage, map, mounted, volume},
    running::Running,
};

const SIZE: u64 = 16 * MIB;

/// All that is in a folder and on its filesystem, the folder included.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let device = fs::metadata(folder).unwrap().dev();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        match metadata.is_dir() {
            true if metadata.dev() == device => found.extend(all_below(&path)),
            true => {}
            false => found.push(path),
        }
    }
    found
}

#[track_caller]
fn assert_private(pool: &Path) {
    for path in all_below(pool) {
        // What a link leads to counts.
        let metadata = path.metadata().unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.mode() & 0o7777, expected, "{}: {:o}", path.display(), metadata.mode());
    }
}

async fn start_with_umask(bench: &Bench, umask: &str) -> Running {
    let driver = bench.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask} && exec \"$0\" \"$@\"")]);
    command.arg(driver.get_program()).args(driver.get_args());
    Running::start(&command, &bench.path(""), &bench.socket()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_readable_by_root_alone_whatever_the_umask_and_also_when_it_was_not() {
    for pool in [PoolKind::Copy, PoolKind::Reflink(512)] {
        let Some(bench) = Bench::new(pool) else { return };
        let driver = start_with_umask(&bench, "000").await;
        let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
        let usage = Usage::new(&bench, "a", &id, mounted(""));
        driver.bring_up(&usage).await.unwrap();
        driver.snapshot("s", &id).await.unwrap();
        driver.group("g", &[&id]).await.unwrap();
        let mut inline = Usage::new(&bench, "inline", "csi-inline", mounted(""));
        inline.staging = PathBuf::new();
        inline.context = map(&[(wharf_facts::context::EPHEMERAL, "true"), ("size", "16Mi")]);
        driver.publish(&inline).await.unwrap();
        assert_private(&bench.pool());
        assert_private(&bench.images());
        assert_private(&bench.path("state"));
        driver.stop().await;

        fs::write(bench.images().join("quarantine/old.img"), "data").unwrap();
        for folder in [bench.pool(), bench.images()] {
            for path in all_below(&folder) {
                let mode = if path.is_dir() { 0o755 } else { 0o644 };
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            }
        }
        let driver = start_with_umask(&bench, "022").await;
        assert_private(&bench.pool());
        assert_private(&bench.images());
        driver.unpublish(&inline).await.unwrap();
        driver.take_down(&usage).await.unwrap();
        driver.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_others_use_too_keeps_its_mode() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    fs::create_dir(bench.pool()).unwrap();
    fs::set_permissions(bench.pool(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(bench.pool().join("others")).unwrap();
    let driver = bench.start().await;
    driver.create(volume("a", SIZE, mounted(""))).await.unwrap();
    assert_eq!(fs::metadata(bench.pool()).unwrap().mode() & 0o777, 0o755);
    for name in ["volumes", "snapshots", "partial", "quarantine"] {
        assert_private(&bench.pool().join(name));
    }
    driver.stop().await;
}
