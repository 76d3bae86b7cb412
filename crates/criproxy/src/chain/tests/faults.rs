//! Servers that are absent, slow, broken, and back again.

use std::time::Duration;

use tokio::time::Instant;
use tonic::{Code, Status};
use wharf_proto::hooks::{ContainerResourceHookRequest, ContainerResourceHookResponse};

use super::bench::{Bench, POINT, about, soon};
use super::server::HookServer;
use super::subject::Container;
use crate::chain::{About, ChainOptions};
use crate::config::{FailurePolicy, Server};

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
    let bench = Bench::new();
    let _first =
        HookServer::failing(&bench.socket("a.json"), Code::ResourceExhausted, "no CPUs left");
    let second = HookServer::idle(&bench.socket("b.json"));
    bench.serve(["a.json", "b.json"].map(|name| bench.server(name, FailurePolicy::Fail)));
    let status = bench.ask().await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    let endpoint = bench.socket("a.json");
    let expected = format!(
        "hook server err: a.json at {}, PreCreateContainer: ResourceExhausted: no CPUs left",
        endpoint.display()
    );
    assert_eq!(status.message(), expected);
    assert!(second.asked().is_empty());
    bench.counted(r#"wharf_proxy_hook_calls_total{server="a.json",hook="PreCreateContainer",outcome="ResourceExhausted"} 1"#);
    bench.counted(r#"wharf_proxy_hook_failures_total{server="a.json",hook="PreCreateContainer",policy="Fail"} 1"#);
}

#[tokio::test]
async fn ignored_it_was_never_asked() {
    let bench = Bench::new();
    let _first = HookServer::failing(&bench.socket("a"), Code::Internal, "broken");
    let second = HookServer::idle(&bench.socket("b"));
    bench.serve(["a", "b"].map(|name| bench.server(name, FailurePolicy::Ignore)));
    let asked = bench.ask().await.unwrap();
    assert!(asked.answered && asked.edits.is_empty());
    assert_eq!(second.asked().len(), 1);
    bench.serve([bench.server("a", FailurePolicy::Ignore)]);
    assert!(!bench.ask().await.unwrap().answered);
    bench.counted(r#"wharf_proxy_hook_failures_total{server="a",hook="PreCreateContainer",policy="Ignore"} 2"#);
}

#[tokio::test]
async fn an_absent_server_fails_at_once() {
    let bench = Bench::new();
    bench.serve([bench.server("a", FailurePolicy::Fail)]);
    let status = bench.ask().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("cannot reach"), "{}", status.message());
    bench.serve([bench.server("a", FailurePolicy::Ignore)]);
    assert!(!bench.ask().await.unwrap().answered);
}

#[tokio::test]
async fn a_server_that_flaps_is_asked_whenever_it_is_there() {
    let bench = Bench::new();
    bench.serve([bench.server("a", FailurePolicy::Fail)]);
    for _ in 0..5 {
        let server = HookServer::idle(&bench.socket("a"));
        assert!(bench.ask().await.unwrap().answered, "no back-off for a call");
        server.stop().await;
        assert_eq!(bench.ask().await.unwrap_err().code(), Code::Unavailable);
    }
}

/// A server that hangs has its slice, and no more: the next one still gets an answer through.
#[tokio::test]
async fn a_hanging_server_does_not_take_the_time_of_others() {
    let bench = Bench::with(short());
    let _hanging = HookServer::hanging(&bench.socket("a"));
    let patient = HookServer::idle(&bench.socket("b"));
    bench.serve(["a", "b"].map(|name| bench.server(name, FailurePolicy::Ignore)));
    let asked = bench.ask().await.unwrap();
    assert!(asked.answered);
    assert_eq!(patient.asked().len(), 1);
    bench.counted(
        r#"wharf_proxy_hook_calls_total{server="a",hook="PreCreateContainer",outcome="timeout"} 1"#,
    );
    bench.serve([bench.server("a", FailurePolicy::Fail)]);
    let status = bench.ask().await.unwrap_err();
    assert_timeout(&status);
}

/// A process that is stopped has a socket that connects and says nothing.
#[tokio::test]
async fn a_server_that_does_not_accept_is_a_timeout() {
    let bench = Bench::with(short());
    let _deaf = std::os::unix::net::UnixListener::bind(bench.socket("a")).unwrap();
    bench.serve([bench.server("a", FailurePolicy::Fail)]);
    assert_timeout(&bench.ask().await.unwrap_err());
}

/// The budget is far away; what ends these calls is the server's own timeout, and the caller's time.
#[tokio::test]
async fn a_timeout_of_its_own_and_a_caller_in_a_hurry() {
    let bench = Bench::new();
    let _hanging = HookServer::hanging(&bench.socket("a"));
    let timeout = Some(Duration::from_millis(50));
    bench.serve([Server { timeout, ..bench.server("a", FailurePolicy::Fail) }]);
    assert_timeout(&bench.ask().await.unwrap_err());
    bench.serve([bench.server("a", FailurePolicy::Fail)]);
    let about = About { ends: Some(Instant::now() + Duration::from_millis(250)), ..about() };
    let request = ContainerResourceHookRequest::default();
    let asked = soon(bench.chain.ask::<Container>(POINT, &about, request)).await;
    assert_timeout(&asked.unwrap_err());
}

#[tokio::test]
async fn a_server_that_panics_fails_this_call_only() {
    let bench = Bench::new();
    let _server = HookServer::start(&bench.socket("a"), |asked| async move {
        assert_ne!(asked.message.pod_cgroup_parent, "/bad", "as this test wants it");
        Ok(ContainerResourceHookResponse::default())
    });
    bench.serve([bench.server("a", FailurePolicy::Fail)]);
    assert_eq!(bench.ask_with_parent("/bad").await.unwrap_err().code(), Code::Unknown);
    assert!(bench.ask().await.unwrap().answered);
}
