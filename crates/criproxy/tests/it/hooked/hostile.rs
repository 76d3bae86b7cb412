//! Requests that are none: refused where hooks would be left out by passing them on, and the
//! runtime's to refuse where nobody wants to be asked.

use bytes::Bytes;
use prost::Message;
use tonic::Code;
use wharf_proto::cri;
use wharf_testkit::{
    hook_server::HookScript,
    runtime::{Received, Reply, Then, message},
};

use super::{
    kubelet::{V1, answered},
    node::{IGNORE, Node, Plan},
    samples::{create, run},
};
use crate::client::{USUAL, send, whole};

const METHODS: [&str; 9] = [
    "RunPodSandbox",
    "RestorePod",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "StartContainer",
    "UpdateContainerResources",
    "StopContainer",
    "RemoveContainer",
];

fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a field that is cut off", vec![0x0a, 0x7f, b'x']),
        (
            "a length beyond everything",
            vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ),
        ("a number that does not end", vec![0xff; 11]),
        ("field zero", vec![0x02, 0x00]),
        ("a wire type that does not exist", vec![0x0f, 0x01]),
        ("a group that never ends", [0x13].repeat(1 << 16)),
    ]
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_where_hooks_are_wanted() {
    let plan = Plan::new();
    let server = plan.server("a.json", IGNORE, HookScript::echo());
    let node = plan.start().await;
    for method in METHODS {
        for (name, bytes) in hostile() {
            let error = node.kubelet.send(method, bytes, USUAL).await.unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{method}: {name}: {error}");
            assert!(error.message().contains("cannot be read"), "{method}: {name}: {error}");
        }
    }
    assert_eq!((node.runtime.calls(), server.calls()), (vec![], vec![]));
    node.container().await;
    assert_eq!(server.hooks(), ["PreRunPodSandbox", "PreCreateContainer"]);
}

#[tokio::test]
async fn what_cannot_be_read_is_passed_on_where_no_hooks_are_wanted() {
    let node = Plan::new().start().await;
    for method in METHODS {
        for (name, bytes) in hostile() {
            node.kubelet.send(method, bytes.clone(), USUAL).await.unwrap();
            assert_eq!(node.last_bytes(method), bytes, "{method}: {name}");
        }
    }
    node.has_records(0, 0).await;
}

/// Two bytes each on the wire, and far more in memory.
#[tokio::test]
async fn more_fields_than_anybody_sends() {
    for hooked in [true, false] {
        let plan = Plan::new();
        let server = hooked.then(|| plan.server("a.json", IGNORE, HookScript::echo()));
        let node = plan.start().await;
        let (pod, container) = node.container().await;
        let with_many = |message: Vec<u8>| [message, [0x78, 0].repeat(1 << 20)].concat();
        let start =
            with_many(cri::StartContainerRequest { container_id: container }.encode_to_vec());
        node.kubelet.send("StartContainer", start.clone(), USUAL).await.unwrap();
        assert_eq!(node.last_bytes("StartContainer"), start, "only its id is of interest");
        let create = with_many(create(&pod).encode_to_vec());
        let created = node.kubelet.send("CreateContainer", create.clone(), USUAL).await;
        match &server {
            Some(server) => {
                let error = created.unwrap_err();
                assert_eq!(error.code(), Code::InvalidArgument);
                assert!(error.message().ends_with("more than 131072 fields"), "{error}");
                assert_eq!(server.hooks().pop(), Some("PostStartContainer"));
            }
            None => {
                created.unwrap();
                assert_eq!(node.last_bytes("CreateContainer"), create);
            }
        }
    }
}

/// Deeper than any message of the interface, and none of the proxy's business.
#[tokio::test]
async fn depth_is_harmless() {
    let plan = Plan::new();
    let _server = plan.server("a.json", IGNORE, HookScript::echo());
    let node = plan.start().await;
    let mut nested = Vec::new();
    for _ in 0..10_000 {
        let mut outer = vec![0x0a];
        let mut length = nested.len();
        while length > 0x7f {
            outer.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.append(&mut nested);
        nested = outer;
    }
    for method in METHODS {
        // Whether it is one that can be read is not the point; that the next one can is.
        let _ = node.kubelet.send(method, nested.clone(), USUAL).await;
    }
    node.container().await;
}

async fn unframed(node: &Node, frames: Bytes) -> Code {
    let (response, mut sink) =
        node.kubelet.client.open(&format!("{V1}/RunPodSandbox"), USUAL).await;
    let _ = send(&mut sink, frames, true).await;
    answered(&whole(response).await.unwrap()).unwrap_err().code()
}

/// A call that is looked into has one message of at most twice the size that kubelets send.
#[tokio::test]
async fn what_is_no_message_is_refused_before_anybody_is_asked() {
    let plan = Plan::new();
    let server = plan.server("a.json", IGNORE, HookScript::echo());
    let node = plan.start().await;
    let one = message(b"");
    for (name, frames, code) in [
        ("none", Bytes::new(), Code::Internal),
        ("two", [one.clone(), one].concat().into(), Code::Internal),
        ("half of one", message(&[0; 64]).slice(..20), Code::Internal),
        ("a strange flag", Bytes::from_static(&[7, 0, 0, 0, 0]), Code::Internal),
        ("a compressed one", Bytes::from_static(&[1, 0, 0, 0, 0]), Code::Unimplemented),
        (
            "4 GiB, it says",
            Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]),
            Code::ResourceExhausted,
        ),
        ("40 MiB", message(&vec![0; 40 << 20]), Code::ResourceExhausted),
    ] {
        assert_eq!(unframed(&node, frames).await, code, "{name}");
    }
    assert_eq!((node.runtime.calls(), server.calls()), (vec![], vec![]));
    node.pod().await;
}

/// Each message alone is small enough.
#[tokio::test]
async fn messages_of_calls_under_way_have_a_bound_together() {
    let node = Plan::new().start().await;
    node.answer("RunPodSandbox", || Reply::then(Vec::new(), Then::Never));
    let big = |name: &str| {
        let mut request = run();
        let config = request.config.as_mut().unwrap();
        config.metadata.as_mut().unwrap().name = name.to_owned();
        config.annotations.insert("big".into(), "x".repeat(24 << 20));
        request
    };
    let waiting = node.kubelet.begin("RunPodSandbox", &big("a")).await;
    let is_there = |call: &Received| call.data.len() > 24 << 20;
    node.runtime.seen(|calls| calls.iter().any(is_there)).await;
    let error = node.kubelet.run(&big("c")).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    assert!(error.message().contains("this process's calls under way take 32 MiB"), "{error}");
    node.heal();
    node.kubelet.run(&run()).await.unwrap();
    drop(waiting);
    let freed = async {
        while node.kubelet.run(&big("c")).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    crate::fixture::soon(freed).await;
}
