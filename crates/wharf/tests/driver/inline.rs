//! Inline volumes of pods: created by NodePublishVolume, and removed if it fails.

use std::path::PathBuf;

use tonic::Code;
use wharf_proto::csi::{self, volume_capability::access_mode::Mode};

use crate::{
    bench::{Bench, MIB, PoolKind},
    bytes::{bytes, checksum, checksum_of, write},
    client::{Usage, block, map, mounted, mounted_as},
    codes::refused,
};

/// An inline volume of this name, in a pod of this UID.
pub(crate) fn inline(
    bench: &Bench,
    name: &str,
    pod: &str,
    capability: csi::VolumeCapability,
    size: &str,
) -> Usage {
    let mut usage = Usage::new(bench, name, &format!("csi-{name}"), capability);
    usage.staging = PathBuf::new();
    usage.context = map(&[
        (wharf_facts::context::EPHEMERAL, "true"),
        (wharf_facts::context::POD_UID, pod),
        ("size", size),
    ]);
    usage
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_that_cannot_be_published_leaves_nothing() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let bad_flag = mounted_as("", &["bogus"], Mode::SingleNodeWriter);
    for (what, capability, size, field) in [
        ("xfs too small", mounted("xfs"), "16Mi", "volume_context.size"),
        ("one byte", mounted(""), "1", "volume_context.size"),
        ("bad flag", bad_flag, "16Mi", "mount_flags"),
    ] {
        let usage = inline(&bench, "a", "pod", capability, size);
        let said = refused(what, driver.publish(&usage).await, Code::InvalidArgument);
        assert!(said.contains(field), "{what}: {said}");
        assert_eq!(bench.rows(), Vec::new(), "{what}");
        bench.assert_empty();
    }
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_that_fails_at_any_step_leaves_nothing_and_a_retry_works() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    for point in [
        "CreateMade",
        "CreateReady",
        "StagePromised",
        "StageNoted",
        "StageAttached",
        "StageFormatted",
        "StageMounted",
        "StageDone",
        "PublishPromised",
        "PublishTargetMade",
        "PublishMounted",
        "PublishDone",
    ] {
        let driver = bench.start_with(&["--fault", &format!("fail:{point}")]).await;
        let usage = inline(&bench, "a", "pod", mounted(""), "16Mi");
        driver.publish(&usage).await.expect_err(point);
        assert_eq!(bench.rows(), Vec::new(), "{point}");
        bench.assert_empty();
        driver.publish(&usage).await.unwrap();
        driver.unpublish(&usage).await.unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_in_use_is_not_undone_by_a_publish_elsewhere() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = inline(&bench, "a", "pod", mounted(""), "16Mi");
    driver.publish(&usage).await.unwrap();
    write(&usage.file("data"), &bytes(1, MIB));
    let elsewhere = Usage { target: bench.path("pods/elsewhere"), ..usage.clone() };
    refused("elsewhere", driver.publish(&elsewhere).await, Code::FailedPrecondition);
    assert_eq!(checksum_of(&usage.file("data"), MIB), checksum(&bytes(1, MIB)));
    driver.publish(&usage).await.unwrap();
    driver.unpublish(&usage).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_that_nobody_asks_for_after_a_crash_is_gone() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    for point in [
        "CreatePromised",
        "CreateReady",
        "StagePromised",
        "StageFormatting",
        "StageMounted",
        "StageDone",
        "PublishPromised",
        "PublishTargetMade",
        "UnpublishDone",
        "UnstageDetached",
        "DeleteBegun",
    ] {
        let mut driver = bench.start_with(&["--fault", &format!("kill:{point}")]).await;
        let usage = inline(&bench, "a", "pod", mounted(""), "16Mi");
        if driver.publish(&usage).await.is_ok() {
            driver.unpublish(&usage).await.expect_err(point);
        }
        driver.killed().await.unwrap();
        let driver = bench.start().await;
        assert_eq!(bench.rows(), Vec::new(), "{point}");
        // The empty target is the kubelet's to remove, or an unpublish's.
        driver.unpublish(&usage).await.unwrap();
        driver.stop().await;
        bench.assert_empty();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_outlives_a_reboot_with_its_pod_and_goes_without_it() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let at_pod = |name: &str| {
        let usage = inline(&bench, name, name, mounted(""), "16Mi");
        std::fs::create_dir(&usage.target).unwrap();
        Usage { target: usage.target.join("mount"), ..usage }
    };
    let (stays, goes) = (at_pod("stays"), at_pod("goes"));
    for (seed, usage) in [(1, &stays), (2, &goes)] {
        driver.publish(usage).await.unwrap();
        write(&usage.file("data"), &bytes(seed, MIB));
    }
    driver.kill().await;
    bench.reboot();
    std::fs::remove_dir_all(goes.target.parent().unwrap()).unwrap();

    let driver = bench.start().await;
    let ids: Vec<_> = bench.rows().into_iter().map(|row| row.id).collect();
    assert_eq!(ids, ["csi-stays"]);
    driver.publish(&stays).await.unwrap();
    assert_eq!(checksum_of(&stays.file("data"), MIB), checksum(&bytes(1, MIB)));
    driver.unpublish(&stays).await.unwrap();
    driver.unpublish(&goes).await.unwrap();
    std::fs::remove_dir(stays.target.parent().unwrap()).unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_volume_in_use_outlives_the_loss_of_the_state_file() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let mounted = inline(&bench, "mounted", "pod", mounted(""), "16Mi");
    let device = inline(&bench, "device", "pod", block(), "16Mi");
    driver.publish(&mounted).await.unwrap();
    driver.publish(&device).await.unwrap();
    let files = [mounted.file("data"), device.target.clone()];
    for (seed, file) in (1..).zip(&files) {
        write(file, &bytes(seed, MIB));
    }
    driver.kill().await;
    std::fs::remove_file(bench.images().join("state.redb")).unwrap();

    let driver = bench.start().await;
    assert_eq!(bench.rows().len(), 2);
    for (seed, file) in (1..).zip(&files) {
        assert_eq!(checksum_of(file, MIB), checksum(&bytes(seed, MIB)));
    }
    driver.unpublish(&mounted).await.unwrap();
    driver.unpublish(&device).await.unwrap();
    driver.stop().await;
    bench.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn inline_volumes_are_listed_and_bounded_in_size_and_number() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let flags = ["--inline-max-size", "32Mi", "--inline-max-per-pod", "2"];
    let driver = bench.start_with(&flags).await;
    let of = |name: &str, pod: &str, size: &str| inline(&bench, name, pod, mounted(""), size);
    let large = driver.publish(&of("large", "pod", "33Mi")).await;
    let said = refused("too large", large, Code::InvalidArgument);
    assert!(said.contains("volume_context.size") && said.contains("--inline-max-size"), "{said}");
    // The default size is a size, too.
    let mut unsaid = of("unsaid", "pod", "1Mi");
    unsaid.context.remove("size");
    let said = refused("default", driver.publish(&unsaid).await, Code::InvalidArgument);
    assert!(said.contains("--inline-max-size"), "{said}");
    let (a, b) = (of("a", "pod", "32Mi"), of("b", "pod", "16Mi"));
    driver.publish(&a).await.unwrap();
    driver.publish(&b).await.unwrap();
    let third = of("c", "pod", "16Mi");
    let said = refused("a third", driver.publish(&third).await, Code::FailedPrecondition);
    assert!(said.contains("--inline-max-per-pod"), "{said}");
    // Those that are there are published again, and other pods have their own.
    driver.publish(&b).await.unwrap();
    let other = of("d", "other", "16Mi");
    driver.publish(&other).await.unwrap();
    let mut unknown = of("e", "pod", "16Mi");
    unknown.context.remove(wharf_facts::context::POD_UID);
    let said = refused("no pod", driver.publish(&unknown).await, Code::InvalidArgument);
    assert!(said.contains("podInfoOnMount"), "{said}");
    let kinds: Vec<_> = bench.rows().into_iter().map(|row| (row.kind, row.id)).collect();
    let expected = ["csi-a", "csi-b", "csi-d"].map(|id| ("inline".to_owned(), id.to_owned()));
    assert_eq!(kinds, expected);
    driver.unpublish(&a).await.unwrap();
    driver.publish(&third).await.unwrap();
    for usage in [b, third, other] {
        driver.unpublish(&usage).await.unwrap();
    }
    driver.stop().await;
    bench.assert_empty();
}
