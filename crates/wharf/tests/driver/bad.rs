//! Foreign data, missing programs and devices, and readers that write.

use std::{
    fs::File,
    io::{ErrorKind, Write},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
};

use tonic::Code;
use wharf_proto::csi::volume_capability::access_mode::Mode;

use crate::{
    bench::{Bench, MIB, PoolKind, needs},
    bytes::{bytes, checksum, checksum_of, read, write},
    client::{Usage, block, block_as, mounted, mounted_as, text, volume},
    codes::refused,
    running::Running,
};

const SIZE: u64 = 16 * MIB;
const HIDE_MKFS_XFS: &str = "for path in /usr/sbin/mkfs.xfs /sbin/mkfs.xfs; do \
                             [ ! -f $path ] || mount --bind /dev/null $path; done";

/// What users of a block device write, and where.
fn foreign() -> Vec<(&'static str, u64, Vec<u8>)> {
    let mut mbr = vec![0; 512];
    mbr[446 + 4] = 0x83;
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    vec![
        ("LUKS", 0, b"LUKS\xba\xbe\x00\x02".to_vec()),
        ("GPT", 512, b"EFI PART\x00\x00\x01\x00".to_vec()),
        ("GPT of large sectors", 4096, b"EFI PART\x00\x00\x01\x00".to_vec()),
        ("MBR", 0, mbr),
        ("swap", 4086, b"SWAPSPACE2".to_vec()),
        ("btrfs", 65536 + 64, b"_BHRfS_M".to_vec()),
        ("anything", 0, bytes(7, 4096)),
        ("anything, in the middle", 5 * MIB + 12345, bytes(8, 100)),
        ("anything, at the end", SIZE - 1, vec![1]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_others_are_never_formatted_over() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    for (what, offset, bytes) in foreign() {
        let id = driver.create(volume(what, SIZE, block())).await.unwrap().volume_id;
        let device = Usage::new(&bench, "device", &id, block());
        driver.bring_up(&device).await.unwrap();
        let opened = File::options().write(true).open(&device.target).unwrap();
        opened.write_all_at(&bytes, offset).and_then(|()| opened.sync_all()).unwrap();
        drop(opened);
        let before = read(&device.target, SIZE);
        driver.take_down(&device).await.unwrap();

        for fs_type in ["", "ext4"] {
            let usage = Usage::new(&bench, "mounted", &id, mounted(fs_type));
            let said = refused(what, driver.stage(&usage).await, Code::FailedPrecondition);
            assert!(said.contains("never formatted over"), "{what}: {said}");
        }
        driver.bring_up(&device).await.unwrap();
        assert!(read(&device.target, SIZE) == before, "{what}");
        driver.take_down(&device).await.unwrap();
        driver.delete(&id).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_of_zeros_is_blank() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let id = driver.create(volume("zeros", SIZE, block())).await.unwrap().volume_id;
    let device = Usage::new(&bench, "device", &id, block());
    driver.bring_up(&device).await.unwrap();
    write(&device.target, &vec![0; usize::try_from(SIZE).unwrap()]);
    driver.take_down(&device).await.unwrap();
    let usage = Usage::new(&bench, "mounted", &id, mounted(""));
    driver.bring_up(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}

/// The driver in a mount namespace of its own, after a script has changed what it sees.
async fn start_after(bench: &Bench, script: &str) -> Running {
    let driver = bench.command(&[]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(format!("{script} && exec \"$0\" \"$@\"")).arg(driver.get_program());
    command.args(driver.get_args());
    Running::start(&command, &bench.path(""), &bench.socket()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_mkfs_is_named_with_its_package_and_a_retry_works_once_it_is_there() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let Some(()) = needs(&["unshare", "mkfs.xfs"]) else { return };
    let driver = start_after(&bench, HIDE_MKFS_XFS).await;
    let id = driver.create(volume("a", 300 * MIB, mounted("xfs"))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted("xfs"));
    let status = driver.stage(&usage).await.unwrap_err();
    assert!(status.message().contains("install the package xfsprogs"), "{status}");
    driver.stop().await;
    let driver = bench.start().await;
    driver.bring_up(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.delete(&id).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_format_that_failed_is_not_gone_on_with_over_what_was_written_since() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let Some(()) = needs(&["unshare", "mkfs.xfs"]) else { return };
    let driver = start_after(&bench, HIDE_MKFS_XFS).await;
    let id = driver.create(volume("a", 300 * MIB, mounted("xfs"))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted("xfs"));
    driver.stage(&usage).await.unwrap_err();
    driver.stop().await;
    let driver = bench.start().await;
    let device = Usage::new(&bench, "device", &id, block());
    driver.bring_up(&device).await.unwrap();
    write(&device.target, &bytes(9, MIB));
    driver.take_down(&device).await.unwrap();
    refused("written", driver.stage(&usage).await, Code::FailedPrecondition);
    driver.bring_up(&device).await.unwrap();
    assert_eq!(checksum_of(&device.target, MIB), checksum(&bytes(9, MIB)));
    driver.take_down(&device).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_loop_device_a_stage_says_so_and_a_retry_works_once_there_is_one() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let Some(()) = needs(&["unshare"]) else { return };
    let driver = start_after(&bench, "mount -t tmpfs none /dev && mknod /dev/null c 1 3").await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted(""));
    let status = driver.stage(&usage).await.unwrap_err();
    assert!(status.message().contains("no free loop device"), "{status}");
    driver.stop().await;
    let driver = bench.start().await;
    driver.bring_up(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_in_use_is_not_unpublished_until_it_is_left() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    for (name, capability) in [("mounted", mounted("")), ("device", block())] {
        let made = driver.create(volume(name, SIZE, capability.clone())).await.unwrap();
        let usage = Usage::new(&bench, name, &made.volume_id, capability);
        driver.bring_up(&usage).await.unwrap();
        let path = if name == "mounted" { usage.file("open") } else { usage.target.clone() };
        let mut open = File::options().create(true).append(true).open(path).unwrap();
        if name == "mounted" {
            let status = driver.unpublish(&usage).await.unwrap_err();
            assert!(status.message().contains(&text(&usage.target)), "{status}");
            assert!(status.message().contains("in use"), "{status}");
            open.write_all(b"still there").unwrap();
        }
        drop(open);
        driver.take_down(&usage).await.unwrap();
        driver.delete(&usage.id).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}

/// How a write to a path ends.
fn try_write(path: &Path) -> std::io::Result<()> {
    let mut file = File::options().create(!path.exists()).write(true).open(path)?;
    file.write_all(&[1; 4096])?;
    file.sync_all()
}

#[track_caller]
fn refuses_writes(path: &Path) {
    let error = try_write(path).expect_err("it was written");
    let refusals = [ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied];
    assert!(refusals.contains(&error.kind()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_cannot_write_whatever_they_try() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let mode = Mode::SingleNodeReaderOnly;
    let modes =
        [("mounted", mounted(""), mounted_as("", &[], mode)), ("device", block(), block_as(mode))];
    for (name, writer, reader) in modes {
        let file = |usage: &Usage| match name {
            "mounted" => usage.file("data"),
            _ => usage.target.clone(),
        };
        let id = driver.create(volume(name, SIZE, writer.clone())).await.unwrap().volume_id;
        let usage = Usage::new(&bench, name, &id, writer.clone());
        driver.bring_up(&usage).await.unwrap();
        write(&file(&usage), &bytes(1, MIB));
        driver.unpublish(&usage).await.unwrap();

        // Staged for a writer, published for a reader.
        let published = Usage { read_only: true, ..usage.clone() };
        driver.publish(&published).await.unwrap();
        assert_eq!(checksum_of(&file(&published), MIB), checksum(&bytes(1, MIB)));
        refuses_writes(&file(&published));
        driver.take_down(&published).await.unwrap();

        // Published to the node for reading, whatever is asked for there.
        driver.attach(&published).await.unwrap();
        driver.stage(&usage).await.unwrap();
        driver.publish(&usage).await.unwrap();
        assert_eq!(checksum_of(&file(&usage), MIB), checksum(&bytes(1, MIB)));
        refuses_writes(&file(&usage));
        driver.take_down(&usage).await.unwrap();
        driver.detach(&id).await.unwrap();

        // For readers from the start.
        let staged = Usage { capability: reader, ..usage };
        driver.bring_up(&staged).await.unwrap();
        assert_eq!(checksum_of(&file(&staged), MIB), checksum(&bytes(1, MIB)));
        refuses_writes(&file(&staged));
        if name == "mounted" {
            refuses_writes(&staged.file("new"));
            refuses_writes(&staged.staging.join("new"));
        }
        driver.take_down(&staged).await.unwrap();
        driver.delete(&id).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn access_modes_say_how_many_targets_a_volume_has() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    for (mode, many) in [
        (Mode::SingleNodeWriter, false),
        (Mode::SingleNodeSingleWriter, false),
        (Mode::SingleNodeMultiWriter, true),
    ] {
        let capability = mounted_as("", &[], mode);
        let made = driver.create(volume("a", SIZE, capability.clone())).await.unwrap();
        let first = Usage::new(&bench, "a", &made.volume_id, capability);
        let second = Usage { target: bench.path("pods/second"), ..first.clone() };
        driver.bring_up(&first).await.unwrap();
        match driver.publish(&second).await {
            Ok(()) => {
                assert!(many, "{mode:?}");
                write(&first.file("data"), b"seen by both");
                assert_eq!(std::fs::read(second.file("data")).unwrap(), b"seen by both");
            }
            refusal => {
                assert!(!many, "{mode:?}");
                refused("second", refusal, Code::FailedPrecondition);
            }
        }
        driver.unpublish(&second).await.unwrap();
        driver.take_down(&first).await.unwrap();
        driver.delete(&first.id).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}
