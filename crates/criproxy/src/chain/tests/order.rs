//! Who is asked, when, and what each of them sees.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tonic::Code;
use wharf_proto::hooks::{
    ContainerMetadata, ContainerResourceHookRequest, ContainerResourceHookResponse,
    LinuxContainerResources,
};
use wharf_uds::LinkState;

use super::bench::{Bench, POINT, about, map, soon};
use super::server::HookServer;
use super::subject::Container;
use crate::HookPoint;
use crate::chain::{About, Trace};
use crate::config::{FailurePolicy, Server};
use crate::edit::{Amount, Edit, Field, Value};

#[tokio::test]
async fn without_servers_nothing_is_asked_and_nothing_fails() {
    let bench = Bench::new();
    assert!(!bench.chain.wants(POINT));
    let asked = bench.ask().await.unwrap();
    assert!(!asked.answered && asked.edits.is_empty());
}

#[tokio::test]
async fn a_server_of_another_hook_is_not_asked() {
    let bench = Bench::new();
    let server = HookServer::failing(&bench.socket("a"), Code::Internal, "asked in vain");
    bench.serve([bench.server("a", FailurePolicy::Fail)]);
    let other = HookPoint::PreStartContainer;
    assert!(bench.chain.wants(POINT) && !bench.chain.wants(other));
    let request = ContainerResourceHookRequest::default();
    let asked = bench.chain.ask::<Container>(other, &about(), request).await.unwrap();
    assert!(!asked.answered);
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn each_sees_the_request_as_changed_so_far() {
    let bench = Bench::new();
    let first = HookServer::start(&bench.socket("b"), |_| async {
        let container_resources = LinuxContainerResources { cpu_shares: 512, ..Default::default() };
        Ok(ContainerResourceHookResponse {
            container_annotations: map(&[("a", "1")]),
            container_resources: Some(container_resources),
            ..Default::default()
        })
    });
    // Echoes, as koordlet does, and adds to it.
    let second = HookServer::start(&bench.socket("a"), |asked| async {
        let mut container_annotations = asked.message.container_annotations;
        container_annotations.insert("b".to_owned(), "2".to_owned());
        let container_resources = asked.message.container_resources;
        Ok(ContainerResourceHookResponse {
            container_annotations,
            container_resources,
            ..Default::default()
        })
    });
    bench.serve([
        bench.server("a", FailurePolicy::Fail),
        Server { order: -1, ..bench.server("b", FailurePolicy::Fail) },
    ]);
    let request = ContainerResourceHookRequest {
        container_meta: Some(ContainerMetadata { name: "nginx".to_owned(), ..Default::default() }),
        ..Default::default()
    };
    let asked = bench.chain.ask::<Container>(POINT, &about(), request.clone()).await.unwrap();
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
    bench.counted(
        r#"wharf_proxy_hook_calls_total{server="a",hook="PreCreateContainer",outcome="ok"} 1"#,
    );
    bench.counted(r#"wharf_proxy_hook_changes_total{server="b",field="annotations"} 1"#);
    bench.counted(r#"wharf_proxy_hook_seconds_count{server="b",hook="PreCreateContainer"} 1"#);
}

#[tokio::test]
async fn a_trace_goes_on_and_servers_know_their_time() {
    let bench = Bench::new();
    let server = HookServer::idle(&bench.socket("a"));
    bench.serve([bench.server("a", FailurePolicy::Fail)]);
    let mut headers = HeaderMap::new();
    headers.insert(
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap(),
    );
    let about = About { trace: Trace::of(&headers), ..about() };
    let request = ContainerResourceHookRequest::default();
    bench.chain.ask::<Container>(POINT, &about, request).await.unwrap();
    let seen = server.asked().remove(0).headers;
    assert_eq!(seen.get("traceparent"), headers.get("traceparent"));
    assert!(seen.contains_key("grpc-timeout"));
    assert!(!seen.contains_key("wharf-outcome-code"));
}

/// A call goes by the servers there were when it began.
#[tokio::test]
async fn a_change_of_servers_is_for_the_next_call() {
    let bench = Bench::new();
    let (asked, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let _first = HookServer::start(&bench.socket("a"), {
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
    let second = HookServer::idle(&bench.socket("b"));
    let both = ["a", "b"].map(|name| bench.server(name, FailurePolicy::Fail));
    bench.serve(both);
    let mut call = JoinSet::new();
    let chain = bench.chain.clone();
    call.spawn(async move {
        chain.ask::<Container>(POINT, &about(), ContainerResourceHookRequest::default()).await
    });
    soon(asked.notified()).await;
    bench.serve([]);
    assert!(!bench.chain.wants(POINT));
    go_on.notify_one();
    assert!(soon(call.join_next()).await.unwrap().unwrap().unwrap().answered);
    assert_eq!(second.asked().len(), 1);
}

/// Calls of different pods do not wait for each other.
#[tokio::test]
async fn calls_pass_each_other() {
    let bench = Bench::new();
    let _server = HookServer::start(&bench.socket("a"), |asked| async move {
        if asked.message.pod_cgroup_parent == "/slow" {
            std::future::pending::<()>().await;
        }
        Ok(ContainerResourceHookResponse::default())
    });
    bench.serve([bench.server("a", FailurePolicy::Fail)]);
    let chain = bench.chain.clone();
    let slow = ContainerResourceHookRequest {
        pod_cgroup_parent: "/slow".to_owned(),
        ..Default::default()
    };
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { chain.ask::<Container>(POINT, &about(), slow).await.map(drop) });
    for _ in 0..10 {
        assert!(bench.ask().await.unwrap().answered);
    }
    assert!(waiting.try_join_next().is_none(), "still waiting");
    waiting.shutdown().await;
}

#[tokio::test]
async fn connections_follow_the_servers_without_a_call() {
    let bench = Bench::new();
    let _server = HookServer::idle(&bench.socket("a"));
    bench.serve(["a", "b"].map(|name| Server {
        endpoint: bench.socket("a"),
        ..bench.server(name, FailurePolicy::Fail)
    }));
    let lines = bench.chain.lines.current();
    let mut link = lines[0].link();
    assert!(link.same_channel(&lines[1].link()), "one connection for one endpoint");
    drop(lines);
    let connected = |state: &LinkState| matches!(state, LinkState::Connected { .. });
    soon(link.wait_for(connected)).await.unwrap();
    bench.serve([]);
    let gone = async { while link.changed().await.is_ok() {} };
    soon(gone).await;
}
