//! Servers that hang once do not cost later calls anything.

use std::{sync::Arc, time::Duration};

use tokio::sync::Semaphore;
use tonic::Code;
use wharf_proto::hooks::ContainerResourceHookResponse;

use super::{
    fixture::{Fixture, soon},
    server::HookServer,
};
use crate::{
    chain::ChainOptions,
    config::{FailurePolicy, Server},
};

fn short() -> Fixture {
    Fixture::with(ChainOptions { budget: Duration::from_secs(1), ..ChainOptions::default() })
}

/// A server that answers nothing until it may.
fn stuck(fixture: &Fixture, name: &str) -> (HookServer, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let server = HookServer::start(&fixture.socket(name), move |_| {
        let gate = gate.clone();
        async move {
            let _open = gate.acquire().await;
            Ok(ContainerResourceHookResponse::default())
        }
    });
    (server, open)
}

#[tokio::test]
async fn a_server_that_hung_is_left_out_at_once() {
    let fixture = short();
    let (server, _gate) = stuck(&fixture, "a");
    fixture.serve([fixture.server("a", FailurePolicy::Ignore)]);
    assert!(!fixture.ask().await.unwrap().answered);
    fixture.counted(r#"wharf_proxy_hook_server_state{server="a",state="left-out"} 1"#);
    for _ in 0..10 {
        assert!(!fixture.ask().await.unwrap().answered);
    }
    assert_eq!(server.asked().len(), 1, "the others cost nothing");
    fixture.counted(
        r#"wharf_proxy_hook_calls_total{server="a",hook="PreCreateContainer",outcome="left-out"} 10"#,
    );

    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let status = fixture.ask().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("left out for"), "{}", status.message());
    assert!(fixture.chain.failures()["a"].contains("left out for"));
}

#[tokio::test]
async fn a_server_that_answers_a_probe_is_asked_again() {
    let fixture = short();
    let (server, gate) = stuck(&fixture, "a");
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    fixture.ask().await.unwrap_err();
    gate.add_permits(1000);
    let answered = async {
        while fixture.ask().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    soon(answered).await;
    assert_eq!(server.asked().len(), 2, "the one that hung, and the probe");
    assert!(fixture.chain.failures().is_empty());
    fixture.counted(r#"wharf_proxy_hook_server_state{server="a",state="asked"} 1"#);
}

/// The probe's call does not wait for it, and the next one finds the server back.
#[tokio::test]
async fn a_probe_goes_on_without_its_call() {
    let fixture = short();
    let (server, gate) = stuck(&fixture, "a");
    fixture.serve([fixture.server("a", FailurePolicy::Ignore)]);
    assert!(!fixture.ask().await.unwrap().answered);
    let probed = async {
        while server.asked().len() < 2 {
            assert!(!fixture.ask().await.unwrap().answered);
            tokio::task::yield_now().await;
        }
    };
    soon(probed).await;
    gate.add_permits(1000);
    let back = async {
        while !fixture.ask().await.unwrap().answered {
            tokio::task::yield_now().await;
        }
    };
    soon(back).await;
    assert_eq!(server.asked().len(), 3, "asked, probed, and asked again");
}

#[tokio::test]
async fn a_server_that_was_started_again_is_asked_at_once() {
    let fixture = short();
    let (stuck, _gate) = stuck(&fixture, "a");
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    fixture.ask().await.unwrap_err();
    stuck.stop().await;
    let server = HookServer::idle(&fixture.socket("a"));
    let conns = fixture.chain.conns.current();
    let mut link = conns[0].link();
    let is_up = |state: &wharf_uds::LinkState| matches!(state, wharf_uds::LinkState::Connected { generation } if *generation > 1);
    soon(link.wait_for(is_up)).await.unwrap();
    assert!(fixture.ask().await.unwrap().answered);
    assert_eq!(server.asked().len(), 1);
}

/// Another file, or another version of it, is no reason to wait for the server again.
#[tokio::test]
async fn a_change_of_files_does_not_bring_it_back() {
    let fixture = short();
    let (hung, _gate) = stuck(&fixture, "a");
    fixture.serve([fixture.server("a", FailurePolicy::Ignore)]);
    assert!(!fixture.ask().await.unwrap().answered);
    let other = HookServer::idle(&fixture.socket("b"));
    let changed = Server { order: 7, ..fixture.server("a", FailurePolicy::Ignore) };
    fixture.serve([changed, fixture.server("b", FailurePolicy::Fail)]);
    assert!(fixture.ask().await.unwrap().answered);
    assert_eq!((hung.asked().len(), other.asked().len()), (1, 1));
}
