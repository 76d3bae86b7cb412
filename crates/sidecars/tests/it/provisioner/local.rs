//! The provisioner with the local-storage driver.

use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::Endpoint;

use super::fixture::{Fixture, SELECTED_NODE, deleted};
use crate::{journal::DEADLINE, local::local_driver};

#[tokio::test]
async fn a_volume_of_the_local_driver_is_made_and_deleted() {
    let Some(mut fixture) = Fixture::new("prov-local", &[]).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (stop, mut serving) = (CancellationToken::new(), JoinSet::new());
    let socket = folder.path().join("local.sock");
    let endpoint: Endpoint = socket.display().to_string().parse().unwrap();
    let driver = local_driver(folder.path(), &fixture.options.driver, "prov-local-id").await;
    let plugin = driver.plugin("1.0.0", false).build().unwrap();
    let stopped = stop.clone();
    serving.spawn(async move { plugin.serve(endpoint, stopped).await.unwrap() });

    fixture.options.node = Some("prov-local-1".to_owned());
    fixture.start_provisioner(&socket, DEADLINE);
    fixture.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    let name = fixture
        .claim(|it| {
            it["spec"]["resources"]["requests"]["storage"] = json!("64Mi");
            it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-local-1");
        })
        .await;
    fixture.journal.expect([format!("POST persistentvolumes {name}")]).await;
    let volume = fixture.persistent_volume(&name).await.unwrap();
    assert_eq!(volume["spec"]["capacity"]["storage"], "64Mi");
    assert!(volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].is_array(), "{volume}");

    fixture.journal.clear();
    fixture.set_phase(&name, "Released").await;
    let [_, object, release] = deleted(&name);
    fixture.journal.expect([object, release]).await;
    fixture.stop().await;
    stop.cancel();
    serving.join_next().await.unwrap().unwrap();
}
