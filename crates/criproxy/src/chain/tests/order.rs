//! Who is asked, when, and what each of them sees.

use std::sync::Arc;

use http::HeaderMap;
use tokio::{sync::Notify, task::JoinSet};
use tonic::Code;
use wharf_proto::hooks::{
    ContainerMetadata, ContainerResourceHookRequest, ContainerResourceHookResponse,
    LinuxContainerResources,
};
use wharf_uds::LinkState;

use super::{
    fixture::{Fixture, POINT, context, map, soon},
    server::HookServer,
    subject::Container,
};
use crate::{
    HookPoint,
    chain::{CallContext, Trace},
    config::{FailurePolicy, Server},
    edit::{Amount, Edit, Field, Value},
};

#[tokio::test]
async fn without_servers_nothing_is_asked_and_nothing_fails() {
    let fixture = Fixture::new();
    assert!(!fixture.chain.wants(POINT));
    let asked = fixture.ask().await.unwrap();
    assert!(!asked.answered && asked.edits.is_empty());
}

#[tokio::test]
async fn a_server_of_another_hook_is_not_asked() {
    let fixture = Fixture::new();
    let server = HookServer::failing(&fixture.socket("a"), Code::Internal, "asked in vain");
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let other = HookPoint::PreStartContainer;
    assert!(fixture.chain.wants(POINT) && !fixture.chain.wants(other));
    let request = ContainerResourceHookRequest::default();
    let asked = fixture.chain.ask::<Container>(other, &context(), request).await.unwrap();
    assert!(!asked.answered);
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn each_sees_the_request_as_changed_so_far() {
    let fixture = Fixture::new();
    let first = HookServer::start(&fixture.socket("b"), |_| async {
        let container_resources = LinuxContainerResources { cpu_shares: 512, ..Default::default() };
        Ok(ContainerResourceHookResponse {
            container_annotations: map(&[("a", "1")]),
            container_resources: Some(container_resources),
            ..Default::default()
        })
    });
    // Echoes, as koordlet does, and adds to it.
    let second = HookServer::start(&fixture.socket("a"), |asked| async {
        let mut container_annotations = asked.message.container_annotations;
        container_annotations.insert("b".to_owned(), "2".to_owned());
        let container_resources = asked.message.container_resources;
        Ok(ContainerResourceHookResponse {
            container_annotations,
            container_resources,
            ..Default::default()
        })
    });
    fixture.serve([
        fixture.server("a", FailurePolicy::Fail),
        Server { order: -1, ..fixture.server("b", FailurePolicy::Fail) },
    ]);
    let request = ContainerResourceHookRequest {
        container_meta: Some(ContainerMetadata { name: "nginx".to_owned(), ..Default::default() }),
        ..Default::default()
    };
    let asked = fixture.chain.ask::<Container>(POINT, &context(), request.clone()).await.unwrap();
    assert!(asked.answered);
    assert_eq!(first.asked()[0].message, request);
    assert_eq!(
        first.asked()[0].method,
        "/runtime.v1alpha1.RuntimeHookService/PreCreateContainerHook"
    );
    assert_eq!(second.asked()[0].message.container_annotations, map(&[("a", "1")]));
    assert_eq!(asked.request.container_annotations, map(&[("a", "1"), ("b", "2")]));
    let added = |key: &str, value: &str| Edit {
        field: Field::Annotation(key.to_owned()),
        from: Value::Absent,
        to: Value::Text(value.to_owned()),
    };
    let shares = Edit {
        field: Field::Amount(Amount::CpuShares),
        from: Value::Number(0),
        to: Value::Number(512),
    };
    assert_eq!(asked.edits, [added("a", "1"), added("b", "2"), shares]);
    fixture.counted(
        r#"wharf_proxy_hook_calls_total{server="a",hook="PreCreateContainer",outcome="ok"} 1"#,
    );
    fixture.counted(r#"wharf_proxy_hook_changes_total{server="b",field="annotations"} 1"#);
    fixture.counted(r#"wharf_proxy_hook_seconds_count{server="b",hook="PreCreateContainer"} 1"#);
}

#[tokio::test]
async fn a_trace_goes_on_and_servers_know_their_time() {
    let fixture = Fixture::new();
    let server = HookServer::idle(&fixture.socket("a"));
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let mut headers = HeaderMap::new();
    headers.insert(
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap(),
    );
    let context = CallContext { trace: Trace::of(&headers), ..context() };
    let request = ContainerResourceHookRequest::default();
    fixture.chain.ask::<Container>(POINT, &context, request).await.unwrap();
    let seen = server.asked().remove(0).headers;
    assert_eq!(seen.get("traceparent"), headers.get("traceparent"));
    assert!(seen.contains_key("grpc-timeout"));
    assert!(!seen.contains_key("wharf-outcome-code"));
}

/// A call goes by the servers there were when it began.
#[tokio::test]
async fn a_change_of_servers_is_for_the_next_call() {
    let fixture = Fixture::new();
    let (asked, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let _first = HookServer::start(&fixture.socket("a"), {
        let (asked, go_on) = (asked.clone(), go_on.clone());
        move |_| {
            let (asked, go_on) = (asked.clone(), go_on.clone());
            async move {
                asked.notify_one();
                go_on.notified().await;
                Ok(ContainerResourceHookResponse::default())
            }
        }
    });
    let second = HookServer::idle(&fixture.socket("b"));
    let both = ["a", "b"].map(|name| fixture.server(name, FailurePolicy::Fail));
    fixture.serve(both);
    let mut call = JoinSet::new();
    let chain = fixture.chain.clone();
    call.spawn(async move {
        chain.ask::<Container>(POINT, &context(), ContainerResourceHookRequest::default()).await
    });
    soon(asked.notified()).await;
    fixture.serve([]);
    assert!(!fixture.chain.wants(POINT));
    go_on.notify_one();
    assert!(soon(call.join_next()).await.unwrap().unwrap().unwrap().answered);
    assert_eq!(second.asked().len(), 1);
}

/// Calls of different pods do not wait for each other.
#[tokio::test]
async fn calls_pass_each_other() {
    let fixture = Fixture::new();
    let _server = HookServer::start(&fixture.socket("a"), |asked| async move {
        if asked.message.pod_cgroup_parent == "/slow" {
            std::future::pending::<()>().await;
        }
        Ok(ContainerResourceHookResponse::default())
    });
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let chain = fixture.chain.clone();
    let slow = ContainerResourceHookRequest {
        pod_cgroup_parent: "/slow".to_owned(),
        ..Default::default()
    };
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { chain.ask::<Container>(POINT, &context(), slow).await.map(drop) });
    for _ in 0..10 {
        assert!(fixture.ask().await.unwrap().answered);
    }
    assert!(waiting.try_join_next().is_none(), "still waiting");
    waiting.shutdown().await;
}

#[tokio::test]
async fn connections_follow_the_servers_without_a_call() {
    let fixture = Fixture::new();
    let _server = HookServer::idle(&fixture.socket("a"));
    fixture.serve(["a", "b"].map(|name| Server {
        endpoint: fixture.socket("a"),
        ..fixture.server(name, FailurePolicy::Fail)
    }));
    let conns = fixture.chain.conns.current();
    let mut link = conns[0].link();
    assert!(link.same_channel(&conns[1].link()), "one connection for one endpoint");
    drop(conns);
    let connected = |state: &LinkState| matches!(state, LinkState::Connected { .. });
    soon(link.wait_for(connected)).await.unwrap();
    fixture.serve([]);
    let gone = async { while link.changed().await.is_ok() {} };
    soon(gone).await;
}
