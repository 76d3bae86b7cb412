//! An unreachable Kubernetes API.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use wharf_testkit::cluster::Cluster;

use crate::csi_support::{TestNode, create_node, node_info};

const GRACE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn drivers_wait_for_the_api_and_everything_is_right_when_it_is_back() -> Result<()> {
    let Some(mut cluster) = Cluster::builder().start().await? else { return Ok(()) };
    let client = wharf_cluster::connect(Some(cluster.kubeconfig())).await?;
    create_node(&client, "patient").await;
    cluster.stop_apiserver().await?;

    // At the start.
    let node = TestNode::on(client, "patient", GRACE);
    let first = node.driver("first.example.com", 1, |script| {
        script.node = node_info("id", 3, &[("zone.example.com", "here")]);
    });
    let (registered, started) = tokio::join!(node.register(&first), async {
        first.driver.wait_for_calls("NodeGetInfo", 1).await;
        cluster.start_apiserver().await
    });
    started?;
    registered?;
    assert_eq!(node.listed().await, ["first.example.com"]);

    // Later: one driver registers and one leaves during the outage.
    cluster.stop_apiserver().await?;
    node.deregister(&first).await;
    let second = node.driver("second.example.com", 1, |_| {});
    let (registered, started) = tokio::join!(node.register(&second), async {
        second.driver.wait_for_calls("NodeGetInfo", 1).await;
        cluster.start_apiserver().await
    });
    started?;
    registered?;
    node.wait_listed(&["second.example.com"]).await;
    assert_eq!(node.ids().await, Some(json!({ "second.example.com": "node-1" })));
    assert!(!node.labels().await.contains_key("zone.example.com"));
    node.record.stop().await;
    cluster.stop().await
}
