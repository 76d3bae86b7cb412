use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc;

use super::{driver::DriverCapabilities, fixture::Fixture};

#[tokio::test]
async fn a_resizer_of_one_node_leaves_volumes_of_others_alone() {
    let topology = [("csi.test/node".to_owned(), "here".to_owned())].into();
    let controller = vec![rpc::Type::ExpandVolume];
    let capabilities = DriverCapabilities { controller, topology, ..DriverCapabilities::default() };
    let Some(mut fixture) = Fixture::with("node-here", capabilities).await else { return };
    fixture.options.node = Some("node-1".to_owned());
    let driver = json!(fixture.options.driver);
    let at = |node: &str| {
        let (driver, node) = (driver.clone(), json!([node]));
        move |it: &mut Value| {
            it["spec"]["csi"]["driver"] = driver;
            let asked = json!({ "key": "csi.test/node", "operator": "In", "values": node });
            let terms = json!([{ "matchExpressions": [asked] }]);
            it["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": terms } });
        }
    };
    let other = Fixture::new("node-there").await.unwrap();
    other.bound(|_| {}, at("there"), json!({})).await;
    let anywhere = Fixture::new("node-anywhere").await.unwrap();
    let own = |it: &mut Value| it["spec"]["csi"]["driver"] = driver.clone();
    anywhere.bound(|_| {}, own, json!({})).await;
    fixture.start().await;
    fixture.bound(|_| {}, at("here"), json!({})).await;
    fixture.expect(fixture.grow_lines(2)).await;
    fixture.stop().await;
}
