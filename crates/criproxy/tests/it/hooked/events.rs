//! Containers whose end the runtime reports by an event: hook servers get PostStopContainer once
//! for each.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tonic::Code;
use wharf_proto::cri;
use wharf_testkit::{
    hook_server::{HookCall, HookScript, HookServer},
    runtime::{Received, Reply, message},
};

use super::{
    node::{FAIL, IGNORE, Ids, Node, Plan, failing},
    samples::create,
};
use crate::fixture::soon;

const EVENTS: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

/// The runtime's events.
struct Feed(watch::Sender<Vec<Bytes>>);

impl Feed {
    /// Has the runtime of a node send events. It lists `exited` as ended.
    fn of(node: &Node, exited: &[&str]) -> Self {
        let feed = Self(watch::Sender::default());
        let (events, ids) = (feed.0.subscribe(), node.ids.clone());
        let exited: Vec<_> = exited.iter().map(|id| (*id).to_owned()).collect();
        node.runtime.tell(move |method| match method {
            EVENTS => Reply { more: Some(events.clone()), ..Reply::of(Vec::new()) },
            _ if method.ends_with("/ListContainers") && !exited.is_empty() => list(&exited),
            _ => ids.list(method),
        });
        feed
    }

    fn send(&self, id: &str, kind: cri::ContainerEventType) {
        let event = cri::ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind.into(),
            ..Default::default()
        };
        self.0.send_modify(|events| events.push(message(&event.encode_to_vec())));
    }

    fn stopped(&self, id: &str) {
        self.send(id, cri::ContainerEventType::ContainerStoppedEvent);
    }
}

fn list(exited: &[String]) -> Reply {
    let container = |id: &String| cri::Container {
        id: id.clone(),
        state: cri::ContainerState::ContainerExited.into(),
        ..Default::default()
    };
    let containers = exited.iter().map(container).collect();
    Reply::of(vec![message(&cri::ListContainersResponse { containers }.encode_to_vec())])
}

/// The messages with which a server was told of a container's end.
fn told(server: &HookServer, id: &str) -> Vec<String> {
    let calls = server.calls();
    let is_end = |call: &&HookCall| call.hook == "PostStopContainer";
    let ends = calls.iter().filter(is_end);
    let ends = ends.filter(|call| call.container().container_meta.as_ref().unwrap().id == id);
    ends.map(|call| call.metadata["wharf-outcome-message"].clone()).collect()
}

async fn is_told(server: &HookServer, id: &str) {
    soon(async {
        while told(server, id).is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn streams(calls: &[Received]) -> usize {
    calls.iter().filter(|call| call.method == EVENTS).count()
}

const BY_EVENT: &str = "the runtime reported that the container has ended";

#[tokio::test]
async fn a_container_that_ends_by_itself_is_told_of_at_once_and_once() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let feed = Feed::of(&node, &[]);
    let (pod, container) = node.container().await;
    let other = node.kubelet.create(&create(&pod)).await.unwrap();
    feed.send(&other, cri::ContainerEventType::ContainerStartedEvent);
    feed.stopped("nobody's");
    feed.stopped(&container);
    is_told(&server, &container).await;
    assert_eq!(told(&server, &container), [BY_EVENT]);
    assert!(told(&server, &other).is_empty(), "it runs");

    feed.stopped(&container);
    node.kubelet.stop(&container).await.unwrap();
    node.kubelet.stop_pod(&pod).await.unwrap();
    node.kubelet.remove(&container).await.unwrap();
    assert_eq!((told(&server, &container).len(), told(&server, &other).len()), (1, 1));
}

#[tokio::test]
async fn an_event_that_follows_a_stop_is_not_told() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let feed = Feed::of(&node, &[]);
    let (pod, stopped) = node.container().await;
    let last = node.kubelet.create(&create(&pod)).await.unwrap();
    node.kubelet.stop(&stopped).await.unwrap();
    feed.stopped(&stopped);
    feed.stopped(&last);
    is_told(&server, &last).await;
    assert_eq!(told(&server, &stopped), [""]);
}

/// The runtime reports the end before it has answered, as containerd does.
#[tokio::test]
async fn an_event_of_a_stop_under_way_is_left_to_it() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let feed = Feed::of(&node, &[]);
    let (pod, stopped) = node.container().await;
    let last = node.kubelet.create(&create(&pod)).await.unwrap();
    let done = Arc::new(Notify::new());
    let pause = done.clone();
    node.answer("StopContainer", move || Reply { pause: Some(pause.clone()), ..Reply::default() });
    let stopping = node.kubelet.stop(&stopped);
    let reporting = async {
        let is_stop = |call: &Received| call.method.ends_with("/StopContainer");
        node.runtime.seen(|calls| calls.iter().any(is_stop)).await;
        feed.stopped(&stopped);
        feed.stopped(&last);
        is_told(&server, &last).await;
        assert!(told(&server, &stopped).is_empty(), "how the stop went is not known yet");
        done.notify_one();
    };
    let (stopping, ()) = tokio::join!(stopping, reporting);
    stopping.unwrap();
    assert_eq!(told(&server, &stopped), [""]);
}

/// A caller that gave up does not keep hook servers from hearing of the end.
#[tokio::test]
async fn the_end_of_a_stop_that_failed_is_told() {
    let plan = Plan::new();
    let server = plan.server("a.json", IGNORE, HookScript::echo());
    let node = plan.start().await;
    let feed = Feed::of(&node, &[]);
    let (_, container) = node.container().await;
    node.fail("StopContainer", Code::DeadlineExceeded, "it takes long");
    node.kubelet.stop(&container).await.unwrap_err();
    assert_eq!(told(&server, &container), ["it takes long"]);
    feed.stopped(&container);
    soon(async {
        while told(&server, &container).len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(told(&server, &container)[1], BY_EVENT);
}

#[tokio::test]
async fn what_ended_between_two_streams_is_told() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let first = Feed::of(&node, &[]);
    let (pod, container) = node.container().await;
    let running = node.kubelet.create(&create(&pod)).await.unwrap();
    node.runtime.inquired(|calls| streams(calls) > 0).await;
    let _second = Feed::of(&node, &[&container]);
    // The stream ends.
    drop(first);
    is_told(&server, &container).await;
    node.kubelet.stop(&container).await.unwrap();
    assert_eq!((told(&server, &container).len(), told(&server, &running).len()), (1, 0));
}

#[tokio::test]
async fn a_runtime_without_events_is_asked_once() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    // From the start on.
    let tale = |ids: &Ids, method: &str| match method {
        EVENTS => failing(Code::Unimplemented, "unknown method"),
        _ => ids.list(method),
    };
    let node = plan.start_telling(tale).await;
    node.runtime.inquired(|calls| streams(calls) == 1).await;
    let (_, container) = node.container().await;
    node.kubelet.remove(&container).await.unwrap();
    assert_eq!(told(&server, &container), [""]);
    assert_eq!(streams(&node.runtime.inquiries()), 1);

    // Another runtime may have them.
    let node = node.restart_runtime(async {}).await;
    let feed = Feed::of(&node, &[]);
    let (_, container) = node.container().await;
    feed.stopped(&container);
    is_told(&server, &container).await;
}

#[tokio::test]
async fn without_a_server_that_wants_it_the_runtime_is_not_asked_for_events() {
    let plan = Plan::new();
    let socket = plan.socket("a.json");
    let file =
        |hooks: &[&str]| json!({"remote-endpoint": socket, "runtime-hooks": hooks}).to_string();
    plan.file("a.json", &file(&["PreCreateContainer"]));
    let server = HookServer::serve(&socket, HookScript::echo());
    let node = plan.start().await;
    let feed = Feed::of(&node, &[]);
    let (_, container) = node.container().await;
    assert_eq!(streams(&node.runtime.inquiries()), 0);
    feed.stopped(&container);
    // Once one wants it, it hears of that, too.
    node.write("a.json", &file(&["PostStopContainer"]));
    is_told(&server, &container).await;
}
