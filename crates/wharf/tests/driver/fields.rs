//! Invalid and unusual fields of requests.

use std::os::unix::fs::symlink;

use tonic::Code;
use wharf_proto::csi::{self, volume_capability::access_mode::Mode};

use crate::{
    bench::{Bench, MIB, PoolKind},
    client::{Usage, map, mounted, mounted_as, volume},
    codes::refused,
};

const SIZE: u64 = 16 * MIB;

#[tokio::test(flavor = "multi_thread")]
async fn any_name_of_128_bytes_is_taken_and_never_becomes_a_path() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let longest = "n".repeat(128);
    let unicode = "ü".repeat(64);
    let names = ["Ünïcødé-名前-🚢", "../../../etc/passwd", "/", "..", "a b\tc", &longest, &unicode];
    for name in names {
        let id = driver.create(volume(name, SIZE, mounted(""))).await.unwrap().volume_id;
        let again = driver.create(volume(name, SIZE, mounted(""))).await.unwrap().volume_id;
        assert_eq!(id, again, "{name:?}");
        let snapshot = driver.snapshot(name, &id).await.unwrap().snapshot_id;
        driver.delete_snapshot(&snapshot).await.unwrap();
    }
    let rows = bench.rows();
    assert_eq!(rows.len(), names.len());
    let plain = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.strip_suffix(".img").unwrap().bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    assert!(bench.files().iter().all(plain), "{:?}", bench.files());
    for row in rows {
        driver.delete(&row.id).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_names_are_refused() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let too_long = "n".repeat(129);
    let too_long_in_bytes = "ü".repeat(65);
    for name in ["", &too_long, &too_long_in_bytes, "a\0b", "a\u{1b}[31m", "a\u{7f}"] {
        let answer = driver.create(volume(name, SIZE, mounted(""))).await;
        let said = refused(name, answer, Code::InvalidArgument);
        assert!(said.starts_with("name: "), "{said}");
        refused(name, driver.snapshot(name, "a").await, Code::InvalidArgument);
        refused(name, driver.delete(name).await, Code::InvalidArgument);
    }
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_that_cannot_be_are_refused() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let asked = |required_bytes, limit_bytes| csi::CreateVolumeRequest {
        capacity_range: Some(csi::CapacityRange { required_bytes, limit_bytes }),
        ..volume("a", SIZE, mounted(""))
    };
    let mib = 1 << 20;
    for (required, limit, code) in [
        (0, 0, Code::InvalidArgument),
        (-1, 0, Code::InvalidArgument),
        (0, -1, Code::InvalidArgument),
        (i64::MIN, i64::MIN, Code::InvalidArgument),
        (2 * mib, mib, Code::InvalidArgument),
        (i64::MAX, 0, Code::OutOfRange),
        (8 * mib + 1, 8 * mib + 2, Code::OutOfRange),
        (0, 1, Code::OutOfRange),
    ] {
        let what = format!("{required} to {limit}");
        let said = refused(&what, driver.create(asked(required, limit)).await, code);
        assert!(said.contains("capacity_range"), "{said}");
    }
    // Without a word on the size, a volume has the usual one.
    let request = csi::CreateVolumeRequest { capacity_range: None, ..asked(0, 0) };
    assert_eq!(driver.create(request).await.unwrap().capacity_bytes, 1 << 30);
    // A size is rounded up to whole blocks.
    let odd = csi::CreateVolumeRequest { name: "odd".into(), ..asked(16 * mib + 1, 0) };
    assert_eq!(driver.create(odd).await.unwrap().capacity_bytes, 16 * mib + 4096);
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_parameters_are_refused_by_name() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    for (key, value) in [
        ("Thin", "true"),
        ("thin", "maybe"),
        ("backend", "lvm"),
        ("backend", "image-reflink"),
        ("csi.storage.k8s.io/fstype", "btrfs"),
    ] {
        let request = csi::CreateVolumeRequest {
            parameters: map(&[(key, value)]),
            ..volume("a", SIZE, mounted(""))
        };
        let said = refused(key, driver.create(request).await, Code::InvalidArgument);
        assert!(said.contains(&format!("parameters.{key}")), "{said}");
    }
    let request = csi::CreateVolumeRequest {
        mutable_parameters: map(&[("iops", "5")]),
        ..volume("a", SIZE, mounted(""))
    };
    let said = refused("iops", driver.create(request).await, Code::InvalidArgument);
    assert!(said.contains("mutable_parameters.iops"), "{said}");
    let answer = driver.create(volume("a", SIZE, mounted("ntfs"))).await;
    assert!(refused("ntfs", answer, Code::InvalidArgument).contains("ext4, xfs"));
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_flags_are_heeded_and_unknown_ones_refused_with_the_kernels_reason() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start_with(&["-v", "6"]).await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let flags = |flags: &[&str]| {
        let capability = mounted_as("", flags, Mode::SingleNodeWriter);
        Usage::new(&bench, "a", &id, capability)
    };
    for (bad, reason) in [
        ("bogus", "Unknown parameter 'bogus'"),
        ("data=nonsense", "Bad value for 'data'"),
        ("noatime,bogus", "Unknown parameter 'bogus'"),
    ] {
        let usage = flags(&[bad]);
        let said = refused(bad, driver.stage(&usage).await, Code::InvalidArgument);
        assert!(said.contains("mount_flags") && said.contains(reason), "{said}");
        // Nothing is half staged.
        assert_eq!(crate::bench::loops_below(&bench.images()), Vec::new());
    }
    for secret in ["loop=hunter2", "data=hunter2", "bogus=hunter2", "noatime,source=hunter2"] {
        let answer = driver.stage(&flags(&[secret])).await;
        let said = refused(secret, answer, Code::InvalidArgument);
        let key = secret.trim_end_matches("=hunter2").trim_start_matches("noatime,");
        assert!(said.contains(key), "{secret}: {said}");
        assert!(!said.contains("hunter2"), "{secret}: {said}");
    }
    assert!(!driver.log().contains("hunter2"), "{}", driver.log());
    let usage = flags(&["noatime", "nodev", "errors=remount-ro"]);
    driver.bring_up(&usage).await.unwrap();
    let mount = wharf_mount::mountinfo::at(&usage.staging).unwrap().unwrap();
    assert!(mount.options.iter().any(|option| option == "noatime"), "{mount:?}");
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_lead_astray_are_refused() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let good = Usage::new(&bench, "a", &id, mounted(""));
    let outside = bench.path("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("precious"), "data").unwrap();
    symlink(&outside, bench.path("stage/link")).unwrap();
    symlink(&outside, bench.path("pods/link")).unwrap();

    for path in ["relative", "stage/../a", ""] {
        let usage = Usage { staging: path.into(), ..good.clone() };
        refused(path, driver.stage(&usage).await, Code::InvalidArgument);
        refused(path, driver.unstage(&usage).await, Code::InvalidArgument);
        let usage = Usage { target: path.into(), ..good.clone() };
        refused(path, driver.publish(&usage).await, Code::InvalidArgument);
        refused(path, driver.unpublish(&usage).await, Code::InvalidArgument);
    }
    for staging in ["stage/link", "stage/link/deep", "stage/../stage/a"] {
        let usage = Usage { staging: bench.path(staging), ..good.clone() };
        refused(staging, driver.stage(&usage).await, Code::InvalidArgument);
        refused(staging, driver.unstage(&usage).await, Code::InvalidArgument);
    }
    driver.stage(&good).await.unwrap();
    for target in ["pods/link", "pods/link/deep", "pods/../pods/a"] {
        let usage = Usage { target: bench.path(target), ..good.clone() };
        refused(target, driver.publish(&usage).await, Code::InvalidArgument);
        refused(target, driver.unpublish(&usage).await, Code::InvalidArgument);
    }
    assert_eq!(crate::bench::mounts_below(&outside), Vec::<std::path::PathBuf>::new());
    assert_eq!(std::fs::read_to_string(outside.join("precious")).unwrap(), "data");
    assert_eq!(outside.read_dir().unwrap().count(), 1);
    driver.unstage(&good).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unpublish_never_deletes_what_is_not_the_volume() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted(""));
    std::fs::create_dir(&usage.target).unwrap();
    std::fs::write(usage.file("precious"), "data").unwrap();
    // Nothing of the volume is there, and a kubelet would ask for ever.
    driver.unpublish(&usage).await.unwrap();
    assert_eq!(std::fs::read_to_string(usage.file("precious")).unwrap(), "data");
    driver.stop().await;
}
