//! Claims that name another driver as their provisioner, and are bound to a volume of this driver.

use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc;

use super::{
    driver::DriverCapabilities,
    fixture::{Fixture, VOLUMES},
    modify::{call_line, class},
};

/// A resizer whose caches drop objects of other drivers.
async fn fixture_of_one_driver(name: &'static str) -> Option<Fixture> {
    let controller = vec![rpc::Type::ExpandVolume, rpc::Type::ModifyVolume];
    let mut fixture =
        Fixture::with(name, DriverCapabilities { controller, ..DriverCapabilities::default() })
            .await?;
    fixture.one_driver = true;
    Some(fixture)
}

fn made_by_another(claim: &mut Value) {
    let provisioner = "volume.kubernetes.io/storage-provisioner";
    claim["metadata"]["annotations"] = json!({ provisioner: "other.csi.test" });
}

#[tokio::test]
async fn a_claim_of_another_provisioner_grows_and_is_modified() {
    let Some(mut fixture) = fixture_of_one_driver("foreign-bound").await else { return };
    fixture.growing_class().await;
    class(&fixture, "gold").await;
    fixture.bound(made_by_another, |_| {}, json!({})).await;
    fixture.start().await;
    fixture.journal.line(&fixture.expand_line(2)).await;
    fixture.wish("foreign-bound-gold").await;
    fixture.journal.line(&call_line(&fixture, "gold")).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_of_another_provisioner_grows_when_its_volume_is_seen_after_it() {
    let Some(mut fixture) = fixture_of_one_driver("foreign-late").await else { return };
    fixture.bound(made_by_another, |_| {}, json!({})).await;
    let mut volume = fixture.get(VOLUMES).await.unwrap();
    fixture.patch(VOLUMES, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete(VOLUMES).await;
    fixture.start().await;
    // Its expansion shows that the first list of claims is complete.
    fixture.bound_as("late-barrier", |_| {}, |_| {}, json!({})).await;
    fixture.about("late-barrier", 4).await;
    let bound = json!({ "status": { "phase": "Bound" } });
    volume["metadata"].as_object_mut().unwrap().retain(|key, _| key == "name");
    fixture.create(VOLUMES, "PersistentVolume", volume).await;
    fixture.patch_at(&format!("{VOLUMES}/foreign-late/status"), bound).await;
    fixture.journal.line(&fixture.expand_line(2)).await;
    fixture.stop().await;
}
