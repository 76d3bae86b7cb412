use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc;

use super::{
    driver::DriverCapabilities,
    fixture::{CLAIMS, CLASSES, Fixture, VOLUMES},
};
use crate::extremes::{fill, is_filled, longest};

#[tokio::test]
async fn a_volume_grows_and_changes_whatever_it_is_called() {
    let controller = vec![rpc::Type::ExpandVolume, rpc::Type::ModifyVolume];
    let capabilities = DriverCapabilities { controller, ..DriverCapabilities::default() };
    let Some(mut fixture) = Fixture::with("extreme-resize", capabilities).await else { return };
    fixture.options.extra_metadata = true;
    let (name, class) = (longest("extreme-resize"), longest("extreme-resize-gold"));
    let gold = json!({
        "metadata": { "name": class },
        "driverName": fixture.options.driver,
        "parameters": { "tier": "gold" },
    });
    fixture.create(CLASSES, "VolumeAttributesClass", gold).await;
    let filled = |it: &mut Value| {
        it["spec"]["volumeAttributesClassName"] = json!(class);
        fill(it);
    };
    fixture.bound_as(&name, filled, filled, json!({})).await;
    fixture.start().await;
    fixture.event("VolumeResizeSuccessful", "Resize volume succeeded").await;
    let modified = format!("external resizer modified volume {name} with vac {class} successfully");
    fixture.event("VolumeModifySuccessful", &modified).await;
    let claim = fixture.get_at(&format!("{CLAIMS}/{name}")).await.unwrap();
    let volume = fixture.get_at(&format!("{VOLUMES}/{name}")).await.unwrap();
    assert!(is_filled(&claim) && is_filled(&volume));
    assert_eq!(claim["status"]["capacity"]["storage"], "2Gi");
    assert_eq!(claim["status"]["currentVolumeAttributesClassName"], class);
    assert_eq!(volume["spec"]["capacity"]["storage"], "2Gi");
    let told = fixture.driver.modified().mutable_parameters;
    assert_eq!(told["csi.storage.k8s.io/pvc/name"], name);
    fixture.stop().await;
}
