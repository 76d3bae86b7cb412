use std::time::Duration;

use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc::Type::{
    ListVolumes, ListVolumesPublishedNodes,
};

use crate::{
    codes::{each, error},
    fixture::{ATTACHMENTS, Fixture},
};

#[tokio::test]
async fn a_volume_that_was_detached_behind_our_back_is_attached_again() {
    let capabilities = [ListVolumes, ListVolumesPublishedNodes];
    let Some(mut fixture) = Fixture::new("audit-lost", &capabilities).await else { return };
    fixture.options.audit = Duration::from_millis(20);
    fixture.attached().await;
    fixture.driver.detach_all();
    fixture.journal.expect([fixture.publish_line(), fixture.attached_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_still_attached_is_detached_again() {
    let capabilities = [ListVolumes, ListVolumesPublishedNodes];
    let Some(mut fixture) = Fixture::new("audit-left", &capabilities).await else { return };
    fixture.options.audit = Duration::from_millis(20);
    fixture.attached().await;
    // Somebody marks it as not attached and removes our finalizer; a foreign finalizer keeps the
    // object.
    fixture
        .patch(ATTACHMENTS, json!({ "metadata": { "finalizers": ["example.com/other"] } }))
        .await;
    fixture.delete(ATTACHMENTS).await;
    fixture.patch_status(json!({ "attached": false })).await;
    fixture.journal.expect([fixture.unpublish_line()]).await;
    fixture.patch(ATTACHMENTS, json!({ "metadata": { "finalizers": null } })).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_does_not_list_its_volumes_is_asked_again_and_nothing_is_done_before() {
    let capabilities = [ListVolumes, ListVolumesPublishedNodes];
    let Some(mut fixture) = Fixture::new("audit-codes", &capabilities).await else { return };
    fixture.options.audit = Duration::from_millis(20);
    let codes = each(fixture.name);
    for (code, _) in &codes {
        fixture.driver.volumes().refuse_list(error(*code));
    }
    fixture.attached().await;
    fixture.driver.detach_all();
    fixture.journal.expect([fixture.publish_line(), fixture.attached_line()]).await;
    let asked = fixture.driver.volumes().lists();
    assert!(asked > codes.len(), "{asked} lists");
    fixture.stop().await;
}

/// An attachment whose states in the API and the driver differ. If the API has no attachment, a
/// foreign finalizer keeps the object.
async fn spoken_of(fixture: &Fixture, name: &str, attached: bool, published: bool) {
    let held = |it: &mut Value| it["metadata"]["finalizers"] = json!(["example.com/other"]);
    fixture.pair(name, |_| {}, held).await;
    let path = format!("{ATTACHMENTS}/{name}");
    match attached {
        true => {
            let status = json!({ "status": { "attached": true } });
            fixture.patch_at(&format!("{path}/status"), status).await;
        }
        false => fixture.delete_at(&path).await,
    }
    if published {
        fixture.driver.put(&format!("{name}-handle"), "audit-table-id");
    }
}

#[tokio::test]
async fn only_what_the_driver_tells_differently_is_worked_on_and_once() {
    let capabilities = [ListVolumes, ListVolumesPublishedNodes];
    let Some(mut fixture) = Fixture::new("audit-table", &capabilities).await else { return };
    fixture.options.audit = Duration::from_millis(20);
    fixture.node().await;
    let rows = [
        ("audit-table-both", true, true, None),
        ("audit-table-api", true, false, Some("ControllerPublishVolume")),
        ("audit-table-driver", false, true, Some("ControllerUnpublishVolume")),
        ("audit-table-none", false, false, None),
    ];
    for (name, attached, published, _) in rows {
        spoken_of(&fixture, name, attached, published).await;
    }
    fixture.start();
    for (name, .., rpc) in rows {
        if let Some(rpc) = rpc {
            fixture.journal.line(&format!("{rpc} {name}-handle audit-table-id")).await;
        }
    }
    // ListVolumes returns one volume per page, of two attached ones: after this many pages the
    // audit has seen both.
    let volumes = fixture.driver.volumes();
    volumes.listed_times(volumes.lists() + 10).await;
    let calls = fixture.journal.lines();
    let calls = calls.iter().filter(|line| line.starts_with("Controller")).count();
    assert_eq!(calls, 2, "{:#?}", fixture.journal.lines());
    for (name, .., rpc) in rows {
        let touched = fixture.journal.lines().iter().any(|line| line.contains(name));
        assert_eq!(touched, rpc.is_some(), "{name}: {:#?}", fixture.journal.lines());
        let path = format!("{ATTACHMENTS}/{name}");
        fixture.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
    }
    fixture.stop().await;
}
