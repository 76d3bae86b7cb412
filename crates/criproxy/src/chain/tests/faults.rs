//! Servers that are absent, slow, broken, and back again.

use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Status};
use wharf_proto::hooks::{ContainerResourceHookRequest, ContainerResourceHookResponse};

use super::{
    fixture::{Fixture, POINT, context, soon},
    server::HookServer,
    subject::Container,
};
use crate::{
    chain::{CallContext, ChainOptions},
    config::{FailurePolicy, Server},
};

fn short() -> ChainOptions {
    ChainOptions { budget: Duration::from_secs(1), ..ChainOptions::default() }
}

fn assert_timeout(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("did not finish in"), "{status}");
}

/// A code of a server must not be taken for one of the runtime.
#[tokio::test]
async fn a_failure_names_the_server_and_its_code() {
    let fixture = Fixture::new();
    let _first =
        HookServer::failing(&fixture.socket("a.json"), Code::ResourceExhausted, "no CPUs left");
    let second = HookServer::idle(&fixture.socket("b.json"));
    fixture.serve(["a.json", "b.json"].map(|name| fixture.server(name, FailurePolicy::Fail)));
    let status = fixture.ask().await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let endpoint = fixture.socket("a.json");
    let expected = format!(
        "hook server err: a.json at {}, PreCreateContainer: ResourceExhausted: no CPUs left",
        endpoint.display()
    );
    assert_eq!(status.message(), expected);
    assert!(second.asked().is_empty());
    fixture.counted(r#"wharf_proxy_hook_calls_total{server="a.json",hook="PreCreateContainer",outcome="ResourceExhausted"} 1"#);
    fixture.counted(r#"wharf_proxy_hook_failures_total{server="a.json",hook="PreCreateContainer",policy="Fail"} 1"#);
}

#[tokio::test]
async fn ignored_it_was_never_asked() {
    let fixture = Fixture::new();
    let _first = HookServer::failing(&fixture.socket("a"), Code::Internal, "broken");
    let second = HookServer::idle(&fixture.socket("b"));
    fixture.serve(["a", "b"].map(|name| fixture.server(name, FailurePolicy::Ignore)));
    let asked = fixture.ask().await.unwrap();
    assert!(asked.answered && asked.edits.is_empty());
    assert_eq!(second.asked().len(), 1);
    fixture.serve([fixture.server("a", FailurePolicy::Ignore)]);
    assert!(!fixture.ask().await.unwrap().answered);
    fixture.counted(r#"wharf_proxy_hook_failures_total{server="a",hook="PreCreateContainer",policy="Ignore"} 2"#);
}

#[tokio::test]
async fn an_absent_server_fails_at_once() {
    let fixture = Fixture::new();
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let status = fixture.ask().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("cannot reach"), "{}", status.message());
    fixture.serve([fixture.server("a", FailurePolicy::Ignore)]);
    assert!(!fixture.ask().await.unwrap().answered);
}

#[tokio::test]
async fn a_server_that_flaps_is_asked_whenever_it_is_there() {
    let fixture = Fixture::new();
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    for _ in 0..5 {
        let server = HookServer::idle(&fixture.socket("a"));
        assert!(fixture.ask().await.unwrap().answered, "no back-off for a call");
        server.stop().await;
        assert_eq!(fixture.ask().await.unwrap_err().code(), Code::Unavailable);
    }
}

/// A server that hangs has its slice, and no more: the next one still gets an answer through.
#[tokio::test]
async fn a_hanging_server_does_not_take_the_time_of_others() {
    let fixture = Fixture::with(short());
    let _hanging = HookServer::hanging(&fixture.socket("a"));
    let patient = HookServer::idle(&fixture.socket("b"));
    fixture.serve(["a", "b"].map(|name| fixture.server(name, FailurePolicy::Ignore)));
    let asked = fixture.ask().await.unwrap();
    assert!(asked.answered);
    assert_eq!(patient.asked().len(), 1);
    fixture.counted(
        r#"wharf_proxy_hook_calls_total{server="a",hook="PreCreateContainer",outcome="timeout"} 1"#,
    );
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let status = fixture.ask().await.unwrap_err();
    assert_timeout(&status);
}

/// A process that is stopped has a socket that connects and says nothing.
#[tokio::test]
async fn a_server_that_does_not_accept_is_a_timeout() {
    let fixture = Fixture::with(short());
    let _deaf = std::os::unix::net::UnixListener::bind(fixture.socket("a")).unwrap();
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    assert_timeout(&fixture.ask().await.unwrap_err());
}

/// The budget is far away; what ends these calls is the server's own timeout, and the caller's
/// time.
#[tokio::test]
async fn a_timeout_of_its_own_and_a_caller_in_a_hurry() {
    let fixture = Fixture::new();
    let _hanging = HookServer::hanging(&fixture.socket("a"));
    let timeout = Some(Duration::from_millis(50));
    fixture.serve([Server { timeout, ..fixture.server("a", FailurePolicy::Fail) }]);
    assert_timeout(&fixture.ask().await.unwrap_err());
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let context =
        CallContext { ends: Some(Instant::now() + Duration::from_millis(250)), ..context() };
    let request = ContainerResourceHookRequest::default();
    let asked = soon(fixture.chain.ask::<Container>(POINT, &context, request)).await;
    assert_timeout(&asked.unwrap_err());
}

#[tokio::test]
async fn a_server_that_panics_fails_this_call_only() {
    let fixture = Fixture::new();
    let _server = HookServer::start(&fixture.socket("a"), |asked| async move {
        assert_ne!(asked.message.pod_cgroup_parent, "/bad", "as this test wants it");
        Ok(ContainerResourceHookResponse::default())
    });
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    assert_eq!(fixture.ask_with_parent("/bad").await.unwrap_err().code(), Code::Unknown);
    assert!(fixture.ask().await.unwrap().answered);
}
