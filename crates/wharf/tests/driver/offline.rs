//! The check and the growth of an unused filesystem survive every kill, of the program and of the
//! driver.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, process::Command, time::Duration};

use wharf_mount::space;
use wharf_testkit::process;

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, map, mounted, volume},
    running::Running,
    stand_in::start_with_path,
};

const SIZE: u64 = 64 * MIB;
const GROWN: u64 = 3 << 30;
const DATA: u64 = MIB;
const LIMIT: Duration = Duration::from_secs(60);

/// Puts a script in front of `program` that kills the program after `seconds`, and the driver with
/// it. Gives the folder.
pub(crate) fn cutting(bench: &Bench, program: &str, seconds: &str) -> PathBuf {
    let folder = bench.path(&format!("cut-{program}"));
    std::fs::create_dir_all(&folder).unwrap();
    let script = folder.join(program);
    let text = format!(
        "#!/bin/sh\nPATH=/usr/sbin:/sbin:/usr/bin:/bin\ntimeout --signal=KILL {seconds} {program} \"$@\"\ncode=$?\n\
         [ $code = 137 ] && kill -9 $PPID\nexit $code\n"
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A volume with data whose image is larger than its filesystem.
async fn to_be_grown(bench: &Bench, driver: &Running) -> Usage {
    let mut request = volume("grown", SIZE, mounted("ext4"));
    request.parameters = map(&[("thin", "true")]);
    let id = driver.create(request).await.unwrap().volume_id;
    let usage = Usage::new(bench, "grown", &id, mounted("ext4"));
    driver.bring_up(&usage).await.unwrap();
    write(&usage.file("data"), &bytes(1, DATA));
    driver.take_down(&usage).await.unwrap();
    driver.expand(&id, GROWN).await.unwrap();
    usage
}

async fn assert_grown(bench: &Bench, driver: &Running, usage: &Usage, case: &str) {
    driver.bring_up(usage).await.unwrap_or_else(|status| panic!("{case}: {status}"));
    assert_eq!(checksum_of(&usage.file("data"), DATA), checksum(&bytes(1, DATA)), "{case}");
    let total = space::usage(&usage.target).unwrap().total;
    assert!(total > GROWN / 10 * 9, "{case}: its filesystem has {total} bytes");
    driver.take_down(usage).await.unwrap();
    let image = bench.files().pop().unwrap();
    let mut fsck = Command::new("e2fsck");
    process::run(fsck.args(["-f", "-n"]).arg(image), LIMIT).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
}

async fn survives_a_cut(pool: PoolKind, program: &str) {
    let Some(bench) = Bench::new(pool) else { return };
    let bench = bench.flag("--kinds", "thick,thin");
    let mut cuts = 0;
    for seconds in ["0.001", "0.003", "0.006", "0.012", "0.025", "0.05", "0.1"] {
        let case = format!("{pool:?}, {program} killed after {seconds} s");
        let mut driver = start_with_path(&bench, &cutting(&bench, program, seconds)).await;
        let usage = to_be_grown(&bench, &driver).await;
        if driver.stage(&usage).await.is_err() {
            driver.killed().await.unwrap_or_else(|error| panic!("{case}: {error}"));
            cuts += 1;
            driver = bench.start().await;
        }
        assert_grown(&bench, &driver, &usage, &case).await;
        driver.stop().await;
        bench.assert_empty();
    }
    assert!(cuts > 0, "{pool:?}: {program} was always faster");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_growth_that_is_killed_leaves_the_volume_as_it_was() {
    if needs(&["resize2fs", "e2undo"]).is_none() {
        return;
    }
    for pool in [PoolKind::Copy, PoolKind::Reflink(4096), PoolKind::Btrfs(4096)] {
        survives_a_cut(pool, "resize2fs").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_is_killed_leaves_the_volume_as_it_was() {
    if needs(&["e2fsck", "e2undo"]).is_none() {
        return;
    }
    for pool in [PoolKind::Copy, PoolKind::Reflink(4096)] {
        survives_a_cut(pool, "e2fsck").await;
    }
}

/// A program that takes longer than `--program-limit` is killed, and the driver goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_growth_that_takes_too_long_is_undone_at_once() {
    for pool in [PoolKind::Copy, PoolKind::Reflink(4096)] {
        let Some(bench) = Bench::new(pool) else { return };
        let bench = bench.flag("--kinds", "thick,thin");
        let folder = cutting(&bench, "resize2fs", "0.02");
        let script = folder.join("resize2fs");
        // Cut in the middle, it hangs, and the driver's limit ends it.
        let text = std::fs::read_to_string(&script).unwrap();
        let hanging = text.replace("[ $code = 137 ] && kill -9 $PPID", "exec sleep 600");
        std::fs::write(&script, hanging).unwrap();
        let mut command = bench.command(&["--program-limit", "2s"]);
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path);
        let driver = Running::start(&command, &bench.path(""), &bench.socket()).await.unwrap();
        let usage = to_be_grown(&bench, &driver).await;
        let status = driver.stage(&usage).await.unwrap_err();
        assert!(status.message().contains("resize2fs"), "{status}");
        driver.stop().await;
        let driver = bench.start().await;
        assert_grown(&bench, &driver, &usage, &format!("{pool:?}")).await;
        driver.stop().await;
        bench.assert_empty();
    }
}

/// Where copies share blocks, a copy is grown and takes the image's place.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_dies_while_a_copy_is_grown_leaves_the_volume_as_it_was() {
    let Some(bench) = Bench::new(PoolKind::Reflink(4096)) else { return };
    let bench = bench.flag("--kinds", "thick,thin");
    for point in ["ReworkCopied", "ReworkDone", "ReworkMarked", "ReworkRenamed"] {
        let mut driver = bench.start_with(&["--fault", &format!("kill:{point}")]).await;
        let usage = to_be_grown(&bench, &driver).await;
        driver.stage(&usage).await.unwrap_err();
        driver.killed().await.unwrap();
        let driver = bench.start().await;
        assert_grown(&bench, &driver, &usage, point).await;
        driver.stop().await;
        bench.assert_empty();
    }
}
