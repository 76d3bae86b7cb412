//! The answers of the health RPCs.

use wharf_mount::mount;
use wharf_proto::csi;

use crate::{
    bench::{Bench, MIB, PoolKind, loops_below},
    client::{Usage, mounted, text, volume},
    running::Running,
};

async fn up(bench: &Bench, driver: &Running) -> Usage {
    let id = driver.create(volume("a", 16 * MIB, mounted(""))).await.unwrap().volume_id;
    let usage = Usage::new(bench, "a", &id, mounted(""));
    driver.bring_up(&usage).await.unwrap();
    assert_eq!(driver.health(&id).await.unwrap(), Vec::<String>::new());
    usage
}

/// All four RPCs that tell how a volume does have to tell the same.
async fn is(driver: &Running, usage: &Usage, expected: &[&str]) {
    assert_eq!(driver.health(&usage.id).await.unwrap(), expected);
    let request = csi::NodeGetVolumeHealthRequest {
        volume_id: usage.id.clone(),
        volume_publish_path: text(&usage.target),
        staging_target_path: text(&usage.staging),
    };
    let health = driver.node().node_get_volume_health(request).await.unwrap().into_inner();
    let found = health.volume_health.unwrap_or_default().health_statuses;
    let told: Vec<_> = found.iter().map(|it| format!("{:?} {}", it.status(), it.reason)).collect();
    assert_eq!(told, expected);
    assert!(found.iter().all(|entry| !entry.message.is_empty()));

    let request = csi::ControllerListVolumeHealthRequest::default();
    let listed = driver.controller().controller_list_volume_health(request).await.unwrap();
    let listed: Vec<_> = listed.into_inner().entries.into_iter().map(|it| it.volume_id).collect();
    assert_eq!(listed, if expected.is_empty() { vec![] } else { vec![usage.id.clone()] });

    let request = csi::ControllerGetVolumeRequest { volume_id: usage.id.clone() };
    let got = driver.controller().controller_get_volume(request).await.unwrap().into_inner();
    let condition = got.status.unwrap().volume_condition.unwrap();
    assert_eq!(condition.abnormal, !expected.is_empty(), "{condition:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_and_a_device_that_were_taken_away_are_missed_until_they_are_back() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = up(&bench, &driver).await;
    mount::unmount(&usage.target).unwrap();
    mount::unmount(&usage.staging).unwrap();
    is(&driver, &usage, &["Inaccessible MountMissing"]).await;
    for (device, _) in loops_below(&bench.images()) {
        wharf_mount::loopdev::detach(&device).unwrap();
    }
    is(&driver, &usage, &["Inaccessible DeviceMissing"]).await;
    driver.bring_up(&usage).await.unwrap();
    is(&driver, &usage, &[]).await;
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filesystem_that_stopped_after_an_error_is_inaccessible() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = up(&bench, &driver).await;
    let mut abort = std::process::Command::new("mount");
    abort.args(["-o", "remount,abort"]).arg(&usage.staging);
    assert!(abort.status().unwrap().success());
    let health = driver.health(&usage.id).await.unwrap();
    assert!(health.contains(&"Inaccessible TurnedReadOnly".to_owned()), "{health:?}");
    driver.take_down(&usage).await.unwrap();
    // The next stage checks and repairs it.
    driver.bring_up(&usage).await.unwrap();
    is(&driver, &usage, &[]).await;
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_gone_is_lost_data() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let usage = up(&bench, &driver).await;
    driver.take_down(&usage).await.unwrap();
    let image = bench.files().remove(0);
    let aside = bench.path("aside.img");
    std::fs::rename(&image, &aside).unwrap();
    is(&driver, &usage, &["DataLoss ImageMissing"]).await;
    driver.kill().await;
    let driver = bench.start().await;
    is(&driver, &usage, &["DataLoss ImageMissing"]).await;
    std::fs::rename(&aside, &image).unwrap();
    is(&driver, &usage, &[]).await;
    driver.bring_up(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}
