//! Claims that name another driver as their provisioner, and are bound to a volume of this driver.

use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc;

use super::bench::{Bench, VOLUMES};
use super::driver::Abilities;
use super::modify::{call_line, class};

/// A resizer whose caches leave out objects of other drivers.
async fn bench_of_one_driver(name: &'static str) -> Option<Bench> {
    let controller = vec![rpc::Type::ExpandVolume, rpc::Type::ModifyVolume];
    let mut bench = Bench::with(name, Abilities { controller, ..Abilities::default() }).await?;
    bench.one_driver = true;
    Some(bench)
}

fn made_by_another(claim: &mut Value) {
    let provisioner = "volume.kubernetes.io/storage-provisioner";
    claim["metadata"]["annotations"] = json!({ provisioner: "other.csi.test" });
}

#[tokio::test]
async fn a_claim_of_another_provisioner_grows_and_is_modified() {
    let Some(mut bench) = bench_of_one_driver("foreign-bound").await else { return };
    bench.growing_class().await;
    class(&bench, "gold").await;
    bench.bound(made_by_another, |_| {}, json!({})).await;
    bench.start().await;
    bench.journal.line(&bench.expand_line(2)).await;
    bench.wish("foreign-bound-gold").await;
    bench.journal.line(&call_line(&bench, "gold")).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_of_another_provisioner_grows_when_its_volume_is_seen_after_it() {
    let Some(mut bench) = bench_of_one_driver("foreign-late").await else { return };
    bench.bound(made_by_another, |_| {}, json!({})).await;
    let mut volume = bench.get(VOLUMES).await.unwrap();
    bench.patch(VOLUMES, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete(VOLUMES).await;
    bench.start().await;
    // Once this one has grown, the first list of claims is over.
    bench.bound_as("late-barrier", |_| {}, |_| {}, json!({})).await;
    bench.about("late-barrier", 4).await;
    let bound = json!({ "status": { "phase": "Bound" } });
    volume["metadata"].as_object_mut().unwrap().retain(|key, _| key == "name");
    bench.create(VOLUMES, "PersistentVolume", volume).await;
    bench.patch_at(&format!("{VOLUMES}/foreign-late/status"), bound).await;
    bench.journal.line(&bench.expand_line(2)).await;
    bench.stop().await;
}
