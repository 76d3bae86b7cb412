//! Servers that are told afterwards.

use std::{collections::BTreeMap, time::Duration};

use tonic::Code;
use wharf_proto::hooks::ContainerResourceHookRequest;

use super::{
    fixture::{Fixture, context, soon},
    server::HookServer,
    subject::Container,
};
use crate::{
    HookPoint,
    chain::{Notified, Outcome},
    config::{FailurePolicy, Server},
};

const POINT: HookPoint = HookPoint::PostStopContainer;

fn notified(fixture: &Fixture, name: &str, policy: FailurePolicy) -> Server {
    Server { hooks: BTreeMap::from([(POINT, policy)]), ..fixture.server(name, policy) }
}

async fn notify(fixture: &Fixture) -> Result<(), tonic::Status> {
    tell_those_who_do_not(fixture, &[]).await.all
}

async fn tell_those_who_do_not(fixture: &Fixture, know: &[&str]) -> Notified {
    let outcome = Outcome {
        code: Code::NotFound,
        message: "no such container: ä".to_owned(),
        duration: Duration::from_millis(1234),
    };
    let request = ContainerResourceHookRequest::default();
    let know = know.iter().map(|&name| name.to_owned()).collect();
    soon(fixture.chain.notify::<Container>(POINT, &context(), request, &outcome, &know)).await
}

#[tokio::test]
async fn the_outcome_is_in_the_metadata() {
    let fixture = Fixture::new();
    let server = HookServer::idle(&fixture.socket("a"));
    fixture.serve([notified(&fixture, "a", FailurePolicy::Fail)]);
    notify(&fixture).await.unwrap();
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
    let fixture = Fixture::new();
    let _ignored = HookServer::failing(&fixture.socket("a"), Code::Internal, "ignored");
    let _first = HookServer::failing(&fixture.socket("b"), Code::Aborted, "the first");
    let _second = HookServer::failing(&fixture.socket("c"), Code::Internal, "the second");
    let last = HookServer::idle(&fixture.socket("d"));
    fixture.serve([
        notified(&fixture, "a", FailurePolicy::Ignore),
        notified(&fixture, "b", FailurePolicy::Fail),
        notified(&fixture, "c", FailurePolicy::Fail),
        notified(&fixture, "d", FailurePolicy::Fail),
    ]);
    let status = notify(&fixture).await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().ends_with("the first"), "{status}");
    assert_eq!(last.asked().len(), 1);
    fixture.serve([notified(&fixture, "a", FailurePolicy::Ignore)]);
    notify(&fixture).await.unwrap();
}

#[tokio::test]
async fn who_knows_is_not_told_again() {
    let fixture = Fixture::new();
    let known = HookServer::idle(&fixture.socket("a"));
    let _down = HookServer::failing(&fixture.socket("b"), Code::Internal, "not now");
    let ignored = HookServer::failing(&fixture.socket("c"), Code::Internal, "never mind");
    let other = HookServer::idle(&fixture.socket("d"));
    fixture.serve([
        notified(&fixture, "a", FailurePolicy::Fail),
        notified(&fixture, "b", FailurePolicy::Fail),
        notified(&fixture, "c", FailurePolicy::Ignore),
        notified(&fixture, "d", FailurePolicy::Ignore),
    ]);
    let Notified { servers, all } = tell_those_who_do_not(&fixture, &["a"]).await;
    assert!(all.is_err());
    assert_eq!(servers.iter().collect::<Vec<_>>(), ["a", "d"]);
    assert_eq!((known.asked().len(), ignored.asked().len(), other.asked().len()), (0, 1, 1));
}
