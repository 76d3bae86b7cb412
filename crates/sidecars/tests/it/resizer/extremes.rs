use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc;

use super::bench::{Bench, CLAIMS, CLASSES, VOLUMES};
use super::driver::Abilities;
use crate::extremes::{fill, is_filled, longest};

#[tokio::test]
async fn a_volume_grows_and_changes_whatever_it_is_called() {
    let controller = vec![rpc::Type::ExpandVolume, rpc::Type::ModifyVolume];
    let abilities = Abilities { controller, ..Abilities::default() };
    let Some(mut bench) = Bench::with("extreme-resize", abilities).await else { return };
    bench.options.extra_metadata = true;
    let (name, class) = (longest("extreme-resize"), longest("extreme-resize-gold"));
    let gold = json!({
        "metadata": { "name": class },
        "driverName": bench.options.driver,
        "parameters": { "tier": "gold" },
    });
    bench.create(CLASSES, "VolumeAttributesClass", gold).await;
    let filled = |it: &mut Value| {
        it["spec"]["volumeAttributesClassName"] = json!(class);
        fill(it);
    };
    bench.bound_as(&name, filled, filled, json!({})).await;
    bench.start().await;
    bench.event("VolumeResizeSuccessful", "Resize volume succeeded").await;
    let modified = format!("external resizer modified volume {name} with vac {class} successfully");
    bench.event("VolumeModifySuccessful", &modified).await;
    let claim = bench.get_at(&format!("{CLAIMS}/{name}")).await.unwrap();
    let volume = bench.get_at(&format!("{VOLUMES}/{name}")).await.unwrap();
    assert!(is_filled(&claim) && is_filled(&volume));
    assert_eq!(claim["status"]["capacity"]["storage"], "2Gi");
    assert_eq!(claim["status"]["currentVolumeAttributesClassName"], class);
    assert_eq!(volume["spec"]["capacity"]["storage"], "2Gi");
    let told = bench.driver.modified().mutable_parameters;
    assert_eq!(told["csi.storage.k8s.io/pvc/name"], name);
    bench.stop().await;
}
