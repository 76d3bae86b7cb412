//! Servers that are told afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::Code;
use wharf_proto::hooks::ContainerResourceHookRequest;

use super::bench::{Bench, about, soon};
use super::server::HookServer;
use super::subject::Container;
use crate::HookPoint;
use crate::chain::{Outcome, Told};
use crate::config::{FailurePolicy, Server};

const POINT: HookPoint = HookPoint::PostStopContainer;

fn told(bench: &Bench, name: &str, policy: FailurePolicy) -> Server {
    Server { hooks: BTreeMap::from([(POINT, policy)]), ..bench.server(name, policy) }
}

async fn tell(bench: &Bench) -> Result<(), tonic::Status> {
    tell_those_who_do_not(bench, &[]).await.all
}

async fn tell_those_who_do_not(bench: &Bench, know: &[&str]) -> Told {
    let outcome = Outcome {
        code: Code::NotFound,
        message: "no such container: ä".to_owned(),
        duration: Duration::from_millis(1234),
    };
    let request = ContainerResourceHookRequest::default();
    let know = know.iter().map(|&name| name.to_owned()).collect();
    soon(bench.chain.tell::<Container>(POINT, &about(), request, &outcome, &know)).await
}

#[tokio::test]
async fn the_outcome_is_in_the_metadata() {
    let bench = Bench::new();
    let server = HookServer::idle(&bench.socket("a"));
    bench.serve([told(&bench, "a", FailurePolicy::Fail)]);
    tell(&bench).await.unwrap();
    let asked = server.asked().remove(0);
    assert_eq!(asked.method, "/runtime.v1alpha1.RuntimeHookService/PostStopContainerHook");
    for (name, value) in [
        ("wharf-outcome-code", "5"),
        ("wharf-outcome-message", "no such container: %C3%A4"),
        ("wharf-outcome-duration-ms", "1234"),
    ] {
        assert_eq!(asked.headers.get(name).unwrap(), value, "{name}");
    }
}

#[tokio::test]
async fn a_failure_counts_once_all_are_told() {
    let bench = Bench::new();
    let _ignored = HookServer::failing(&bench.socket("a"), Code::Internal, "ignored");
    let _first = HookServer::failing(&bench.socket("b"), Code::Aborted, "the first");
    let _second = HookServer::failing(&bench.socket("c"), Code::Internal, "the second");
    let last = HookServer::idle(&bench.socket("d"));
    bench.serve([
        told(&bench, "a", FailurePolicy::Ignore),
        told(&bench, "b", FailurePolicy::Fail),
        told(&bench, "c", FailurePolicy::Fail),
        told(&bench, "d", FailurePolicy::Fail),
    ]);
    let status = tell(&bench).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().ends_with("the first"), "{status}");
    assert_eq!(last.asked().len(), 1);
    bench.serve([told(&bench, "a", FailurePolicy::Ignore)]);
    tell(&bench).await.unwrap();
}

#[tokio::test]
async fn who_knows_is_not_told_again() {
    let bench = Bench::new();
    let known = HookServer::idle(&bench.socket("a"));
    let _down = HookServer::failing(&bench.socket("b"), Code::Internal, "not now");
    let ignored = HookServer::failing(&bench.socket("c"), Code::Internal, "never mind");
    let other = HookServer::idle(&bench.socket("d"));
    bench.serve([
        told(&bench, "a", FailurePolicy::Fail),
        told(&bench, "b", FailurePolicy::Fail),
        told(&bench, "c", FailurePolicy::Ignore),
        told(&bench, "d", FailurePolicy::Ignore),
    ]);
    let Told { servers, all } = tell_those_who_do_not(&bench, &["a"]).await;
    assert!(all.is_err());
    assert_eq!(servers.iter().collect::<Vec<_>>(), ["a", "d"]);
    assert_eq!((known.asked().len(), ignored.asked().len(), other.asked().len()), (0, 1, 1));
}
