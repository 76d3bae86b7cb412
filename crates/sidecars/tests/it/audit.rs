use std::time::Duration;

use serde_json::json;
use wharf_proto::csi::controller_service_capability::rpc::Type::{
    ListVolumes, ListVolumesPublishedNodes,
};

use crate::bench::{ATTACHMENTS, Bench};

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
