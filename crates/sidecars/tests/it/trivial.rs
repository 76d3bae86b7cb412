use serde_json::json;
use wharf_proto::csi::controller_service_capability::rpc;

use crate::fixture::{ATTACHMENTS, Fixture};

#[tokio::test]
async fn a_driver_that_attaches_nothing_has_its_attachments_marked() {
    let capabilities = [rpc::Type::CreateDeleteVolume];
    let Some(mut fixture) = Fixture::with("trivial", &capabilities).await else { return };
    fixture.attachment(|_| {}).await;
    fixture.start();
    let marked = fixture.status_line(&json!({ "attachError": null, "attached": true }));
    fixture.journal.expect([marked]).await;
    fixture.delete(ATTACHMENTS).await;
    assert_eq!(fixture.get(ATTACHMENTS).await, None, "nothing holds it");
    fixture.stop().await;
}
