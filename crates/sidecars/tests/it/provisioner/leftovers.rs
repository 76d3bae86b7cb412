use std::time::Duration;

use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc;

use super::fixture::Fixture;

#[tokio::test]
async fn a_volume_that_nobody_asks_for_is_reported_and_stays() {
    let Some(mut fixture) = Fixture::new("prov-left", &[rpc::Type::ListVolumes]).await else {
        return;
    };
    let mut registry = Registry::default();
    fixture.options.metrics.register(&mut registry);
    fixture.options.leftovers = Duration::from_millis(20);
    let volumes = fixture.driver.volumes();
    volumes.put("pvc-00000000-0000-0000-0000-000000000001");
    volumes.put("made-by-hand");
    // A volume of another driver has the same handle.
    let other = |it: &mut Value| {
        it["spec"]["csi"] = json!({ "driver": "other.csi.test", "volumeHandle": "made-by-hand" });
        it["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        it["metadata"]["finalizers"] = json!([]);
    };
    fixture.released("prov-left-other", other).await;
    // This one has a claim and a PersistentVolume.
    fixture.bound().await;
    // Later lists are for a comparison that includes all of this.
    let volumes = fixture.driver.volumes();
    let listed = volumes.lists();
    // One volume per page, and so three calls per comparison: one comparison may be in progress,
    // two are complete, since a volume with an unknown claim has to be seen twice, and the next has
    // begun.
    volumes.listed_times(listed + 10).await;
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(text.contains("csi_provisioner_leftover_volumes 1"), "{text}");
    assert!(text.contains("csi_provisioner_unknown_volumes 1"), "{text}");
    assert_eq!(volumes.made().len(), 3);
    let asked = volumes.max_entries_asked();
    assert!(asked.iter().all(|entries| *entries > 0), "{asked:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_is_not_asked_for_its_volumes_unless_a_flag_says_so() {
    let Some(mut fixture) = Fixture::new("prov-quiet", &[rpc::Type::ListVolumes]).await else {
        return;
    };
    fixture.bound().await;
    // The comparison, if enabled, begins with the work.
    assert_eq!(fixture.driver.volumes().lists(), 0);
    assert!(fixture.options.leftovers.is_zero());
    fixture.stop().await;
}
