//! How the histogram counts calls.

use std::time::Duration;

use prometheus_client::registry::Registry;
use wharf_uds::{RpcMetrics, timed, within};

use crate::echo::{Folder, Message, Server, call, channel};

fn count(registry: &Registry, method: &str, code: &str) -> Option<u64> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let labels = format!(
        "csi_sidecar_operations_seconds_count{{driver_name=\"d.example\",\
         method_name=\"{method}\",grpc_status_code=\"{code}\"}} "
    );
    text.lines().find_map(|line| line.strip_prefix(&labels)?.parse().ok())
}

#[tokio::test]
async fn counts_each_call_by_its_code() {
    let folder = Folder::new();
    let mut registry = Registry::default();
    let metrics = RpcMetrics::register(&mut registry).for_driver("d.example");
    let channel = channel(&folder.socket()).with_metrics(metrics);
    call(&channel, "/test.Echo/Echo", Message::of("")).await.unwrap_err();
    assert_eq!(count(&registry, "/test.Echo/Echo", "Unavailable"), Some(1));

    let server = Server::start(&folder.socket());
    for _ in 0..3 {
        call(&channel, "/test.Echo/Echo", Message::of("a")).await.unwrap();
    }
    assert_eq!(count(&registry, "/test.Echo/Echo", "OK"), Some(3));
    call(&channel, "/test.Echo/Fail", Message::of("a")).await.unwrap_err();
    assert_eq!(count(&registry, "/test.Echo/Fail", "NotFound"), Some(1));
    call(&channel, "/test.Echo/None", Message::of("a")).await.unwrap_err();
    assert_eq!(count(&registry, "/test.Echo/None", "Unimplemented"), Some(1));
    let waiting = call(&channel, "/test.Echo/Wait", Message::of("a"));
    within(Duration::from_millis(50), "Wait", waiting).await.unwrap_err();
    assert_eq!(count(&registry, "/test.Echo/Wait", "Canceled"), Some(1));
    let timeout = Duration::from_millis(50);
    let waiting = call(&channel, "/test.Echo/Wait", timed(Message::of("a"), timeout));
    within(timeout, "Wait", waiting).await.unwrap_err();
    assert_eq!(count(&registry, "/test.Echo/Wait", "DeadlineExceeded"), Some(1));
    server.stopped().await;
}
