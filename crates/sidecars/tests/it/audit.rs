use std::time::Duration;

use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc::Type::{
    ListVolumes, ListVolumesPublishedNodes,
};

use crate::bench::{ATTACHMENTS, Bench};
use crate::codes::{each, error};

#[tokio::test]
async fn a_volume_that_was_detached_behind_our_back_is_attached_again() {
    let capabilities = [ListVolumes, ListVolumesPublishedNodes];
    let Some(mut bench) = Bench::new("audit-lost", &capabilities).await else { return };
    bench.options.audit = Duration::from_millis(20);
    bench.attached().await;
    bench.driver.detach_all();
    bench.journal.expect([bench.publish_line(), bench.attached_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_still_attached_is_detached_again() {
    let capabilities = [ListVolumes, ListVolumesPublishedNodes];
    let Some(mut bench) = Bench::new("audit-left", &capabilities).await else { return };
    bench.options.audit = Duration::from_millis(20);
    bench.attached().await;
    // Someone says that it is not attached, and lets it go; a third holds the object.
    bench.patch(ATTACHMENTS, json!({ "metadata": { "finalizers": ["example.com/other"] } })).await;
    bench.delete(ATTACHMENTS).await;
    bench.patch_status(json!({ "attached": false })).await;
    bench.journal.expect([bench.unpublish_line()]).await;
    bench.patch(ATTACHMENTS, json!({ "metadata": { "finalizers": null } })).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_does_not_list_its_volumes_is_asked_again_and_nothing_is_done_before() {
    let capabilities = [ListVolumes, ListVolumesPublishedNodes];
    let Some(mut bench) = Bench::new("audit-codes", &capabilities).await else { return };
    bench.options.audit = Duration::from_millis(20);
    let codes = each(bench.name);
    for (code, _) in &codes {
        bench.driver.volumes().refuse_list(error(*code));
    }
    bench.attached().await;
    bench.driver.detach_all();
    bench.journal.expect([bench.publish_line(), bench.attached_line()]).await;
    let asked = bench.driver.volumes().lists();
    assert!(asked > codes.len(), "{asked} lists");
    bench.stop().await;
}

/// An attachment that the API and the driver speak of, each in its way. Where the API says that there is none, someone
/// else holds what is left of it.
async fn spoken_of(bench: &Bench, name: &str, attached: bool, published: bool) {
    let held = |it: &mut Value| it["metadata"]["finalizers"] = json!(["example.com/other"]);
    bench.pair(name, |_| {}, held).await;
    let path = format!("{ATTACHMENTS}/{name}");
    match attached {
        true => {
            let status = json!({ "status": { "attached": true } });
            bench.patch_at(&format!("{path}/status"), status).await;
        }
        false => bench.delete_at(&path).await,
    }
    if published {
        bench.driver.put(&format!("{name}-handle"), "audit-table-id");
    }
}

#[tokio::test]
async fn only_what_the_driver_tells_differently_is_worked_on_and_once() {
    let capabilities = [ListVolumes, ListVolumesPublishedNodes];
    let Some(mut bench) = Bench::new("audit-table", &capabilities).await else { return };
    bench.options.audit = Duration::from_millis(20);
    bench.node().await;
    let rows = [
        ("audit-table-both", true, true, None),
        ("audit-table-api", true, false, Some("ControllerPublishVolume")),
        ("audit-table-driver", false, true, Some("ControllerUnpublishVolume")),
        ("audit-table-none", false, false, None),
    ];
    for (name, attached, published, _) in rows {
        spoken_of(&bench, name, attached, published).await;
    }
    bench.start();
    for (name, .., rpc) in rows {
        if let Some(rpc) = rpc {
            bench.journal.line(&format!("{rpc} {name}-handle audit-table-id")).await;
        }
    }
    // One volume per page, of two that are attached by now: after as many pages some passes have seen it so.
    let volumes = bench.driver.volumes();
    volumes.listed_times(volumes.lists() + 10).await;
    let calls = bench.journal.lines();
    let calls = calls.iter().filter(|line| line.starts_with("Controller")).count();
    assert_eq!(calls, 2, "{:#?}", bench.journal.lines());
    for (name, .., rpc) in rows {
        let touched = bench.journal.lines().iter().any(|line| line.contains(name));
        assert_eq!(touched, rpc.is_some(), "{name}: {:#?}", bench.journal.lines());
        let path = format!("{ATTACHMENTS}/{name}");
        bench.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
    }
    bench.stop().await;
}
