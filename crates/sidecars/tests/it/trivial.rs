use serde_json::json;
use wharf_proto::csi::controller_service_capability::rpc;

use crate::bench::{ATTACHMENTS, Bench};

#[tokio::test]
async fn a_driver_that_attaches_nothing_has_its_attachments_marked() {
    let capabilities = [rpc::Type::CreateDeleteVolume];
    let Some(mut bench) = Bench::with("trivial", &capabilities).await else { return };
    bench.attachment(|_| {}).await;
    bench.start();
    let marked = bench.status_line(&json!({ "attachError": null, "attached": true }));
    bench.journal.expect([marked]).await;
    bench.delete(ATTACHMENTS).await;
    assert_eq!(bench.get(ATTACHMENTS).await, None, "nothing holds it");
    bench.stop().await;
}
