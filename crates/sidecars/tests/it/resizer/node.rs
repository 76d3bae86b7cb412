use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc;

use super::bench::Bench;
use super::driver::Abilities;

#[tokio::test]
async fn a_resizer_of_one_node_leaves_volumes_of_others_alone() {
    let topology = [("csi.test/node".to_owned(), "here".to_owned())].into();
    let controller = vec![rpc::Type::ExpandVolume];
    let abilities = Abilities { controller, topology, ..Abilities::default() };
    let Some(mut bench) = Bench::with("node-here", abilities).await else { return };
    bench.options.node = Some("node-1".to_owned());
    let driver = json!(bench.options.driver);
    let at = |node: &str| {
        let (driver, node) = (driver.clone(), json!([node]));
        move |it: &mut Value| {
            it["spec"]["csi"]["driver"] = driver;
            let asked = json!({ "key": "csi.test/node", "operator": "In", "values": node });
            let terms = json!([{ "matchExpressions": [asked] }]);
            it["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": terms } });
        }
    };
    let other = Bench::new("node-there").await.unwrap();
    other.bound(|_| {}, at("there"), json!({})).await;
    let anywhere = Bench::new("node-anywhere").await.unwrap();
    let own = |it: &mut Value| it["spec"]["csi"]["driver"] = driver.clone();
    anywhere.bound(|_| {}, own, json!({})).await;
    bench.start().await;
    bench.bound(|_| {}, at("here"), json!({})).await;
    bench.expect(bench.grow_lines(2)).await;
    bench.stop().await;
}
