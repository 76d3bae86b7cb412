//! Two servers that fight over one field.

use tonic::Code;
use wharf_proto::hooks::ContainerResourceHookResponse;

use super::{
    fixture::{Fixture, map},
    server::HookServer,
};
use crate::{chain::Conflict, config::FailurePolicy};

/// Servers `a` and `b` that both want FOO, and each something of its own.
fn fighters(fixture: &Fixture) -> [HookServer; 2] {
    ["a", "b"].map(|name| {
        HookServer::start(&fixture.socket(name), move |_| async move {
            let container_envs = map(&[("FOO", name), (name, "1")]);
            Ok(ContainerResourceHookResponse { container_envs, ..Default::default() })
        })
    })
}

fn counted(fixture: &Fixture, resolution: &str) {
    fixture.counted(&format!(
        "wharf_proxy_hook_conflicts_total{{server=\"b\",owner=\"a\",resolution=\"{resolution}\"}} 1"
    ));
}

#[tokio::test]
async fn refused_the_second_one_has_failed() {
    let fixture = Fixture::resolving(Conflict::Refuse);
    let _servers = fighters(&fixture);
    fixture.serve(["a", "b"].map(|name| fixture.server(name, FailurePolicy::Ignore)));
    let asked = fixture.ask().await.unwrap();
    assert_eq!(asked.request.container_envs, map(&[("FOO", "a"), ("a", "1")]), "nothing of b");
    counted(&fixture, "refuse");
    fixture.counted(r#"wharf_proxy_hook_calls_total{server="b",hook="PreCreateContainer",outcome="conflict"} 1"#);

    fixture.serve(["a", "b"].map(|name| fixture.server(name, FailurePolicy::Fail)));
    let status = fixture.ask().await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().starts_with("hook server err: b at "), "{status}");
    assert!(status.message().ends_with("changed before: envs[FOO] by a"), "{status}");
}

#[tokio::test]
async fn first_come_first_served() {
    let fixture = Fixture::resolving(Conflict::First);
    let _servers = fighters(&fixture);
    fixture.serve(["a", "b"].map(|name| fixture.server(name, FailurePolicy::Fail)));
    let asked = fixture.ask().await.unwrap();
    assert_eq!(asked.request.container_envs, map(&[("FOO", "a"), ("a", "1"), ("b", "1")]));
    assert_eq!(asked.edits.len(), 3);
    counted(&fixture, "first");
}

#[tokio::test]
async fn the_last_one_wins() {
    let fixture = Fixture::resolving(Conflict::Last);
    let _servers = fighters(&fixture);
    fixture.serve(["a", "b"].map(|name| fixture.server(name, FailurePolicy::Fail)));
    let asked = fixture.ask().await.unwrap();
    assert_eq!(asked.request.container_envs, map(&[("FOO", "b"), ("a", "1"), ("b", "1")]));
    assert_eq!(asked.edits.len(), 3, "one of FOO, from nothing to b");
    counted(&fixture, "last");
}
