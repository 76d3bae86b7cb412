//! Two servers that fight over one field.

use tonic::Code;
use wharf_proto::hooks::ContainerResourceHookResponse;

use super::bench::{Bench, map};
use super::server::HookServer;
use crate::chain::Conflict;
use crate::config::FailurePolicy;

/// Servers `a` and `b` that both want FOO, and each something of its own.
fn fighters(bench: &Bench) -> [HookServer; 2] {
    ["a", "b"].map(|name| {
        HookServer::start(&bench.socket(name), move |_| async move {
            let container_envs = map(&[("FOO", name), (name, "1")]);
            Ok(ContainerResourceHookResponse { container_envs, ..Default::default() })
        })
    })
}

fn counted(bench: &Bench, resolution: &str) {
    bench.counted(&format!(
        "wharf_proxy_hook_conflicts_total{{server=\"b\",owner=\"a\",resolution=\"{resolution}\"}} 1"
    ));
}

#[tokio::test]
async fn refused_the_second_one_has_failed() {
    let bench = Bench::resolving(Conflict::Refuse);
    let _servers = fighters(&bench);
    bench.serve(["a", "b"].map(|name| bench.server(name, FailurePolicy::Ignore)));
    let asked = bench.ask().await.unwrap();
    assert_eq!(asked.request.container_envs, map(&[("FOO", "a"), ("a", "1")]), "nothing of b");
    counted(&bench, "refuse");
    bench.counted(r#"wharf_proxy_hook_calls_total{server="b",hook="PreCreateContainer",outcome="conflict"} 1"#);

    bench.serve(["a", "b"].map(|name| bench.server(name, FailurePolicy::Fail)));
    let status = bench.ask().await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().starts_with("hook server err: b at "), "{status}");
    assert!(status.message().ends_with("changed before: envs[FOO] by a"), "{status}");
}

#[tokio::test]
async fn first_come_first_served() {
    let bench = Bench::resolving(Conflict::First);
    let _servers = fighters(&bench);
    bench.serve(["a", "b"].map(|name| bench.server(name, FailurePolicy::Fail)));
    let asked = bench.ask().await.unwrap();
    assert_eq!(asked.request.container_envs, map(&[("FOO", "a"), ("a", "1"), ("b", "1")]));
    assert_eq!(asked.edits.len(), 3);
    counted(&bench, "first");
}

#[tokio::test]
async fn the_last_one_wins() {
    let bench = Bench::resolving(Conflict::Last);
    let _servers = fighters(&bench);
    bench.serve(["a", "b"].map(|name| bench.server(name, FailurePolicy::Fail)));
    let asked = bench.ask().await.unwrap();
    assert_eq!(asked.request.container_envs, map(&[("FOO", "b"), ("a", "1"), ("b", "1")]));
    assert_eq!(asked.edits.len(), 3, "one of FOO, from nothing to b");
    counted(&bench, "last");
}
