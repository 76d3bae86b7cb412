//! What koord-runtime-proxy loses silently: fields, large messages, variables.

use std::sync::Arc;

use prost::Message as _;
use wharf_proto::{cri, hooks::PodSandboxHookResponse};
use wharf_testkit::{
    hook_server::{HookScript, echo},
    runtime::{Reply, message},
};
use wharf_wire::Message;

use super::{
    node::{FAIL, Plan},
    samples::{create, env, map, run, update},
};
use crate::client::{USUAL, VERSION};

/// A field that no version of the protocol has.
const UNKNOWN: u32 = 9_999;

/// Changes something of every request.
fn changing() -> HookScript {
    HookScript {
        pod: Arc::new(|_, _| PodSandboxHookResponse {
            labels: map(&[("app", "changed")]),
            annotations: map(&[("new", "one")]),
            cgroup_parent: "/changed".into(),
            ..Default::default()
        }),
        container: Arc::new(|_, asked| {
            let mut answer = echo(asked);
            answer.container_annotations = map(&[("note", "changed")]);
            answer.container_envs.insert("A".into(), "changed".into());
            answer.pod_cgroup_parent = "/changed".into();
            let resources = answer.container_resources.as_mut().unwrap();
            resources.cpu_shares = 7;
            resources.unified.insert("cpu.weight".into(), "9".into());
            answer
        }),
        ..HookScript::default()
    }
}

/// Adds an unknown field to the messages at the end of these paths, which say where they are.
fn with_unknown(request: &impl prost::Message, paths: &[&[u32]]) -> Vec<u8> {
    let mut whole = Message::parse(request.encode_to_vec().into()).unwrap();
    for path in paths {
        let mut inner = &mut whole;
        for number in *path {
            inner = inner.open(*number).unwrap();
        }
        inner.set_bytes(UNKNOWN, format!("{path:?}").as_bytes());
    }
    whole.encode().to_vec()
}

fn assert_unknown(bytes: &[u8], paths: &[&[u32]]) {
    let mut whole = Message::parse(bytes.to_vec().into()).unwrap();
    for path in paths {
        let mut inner = &mut whole;
        for number in *path {
            inner = inner.open(*number).unwrap();
        }
        let found = inner.all(UNKNOWN).unwrap();
        assert_eq!(found, [format!("{path:?}")], "the unknown field at {path:?}");
    }
}

#[tokio::test]
async fn fields_of_newer_kubelets_survive_what_hooks_change() {
    let plan = Plan::new();
    let _server = plan.server("a.json", FAIL, changing());
    let node = plan.start().await;
    let kubelet = &node.kubelet;

    let paths: &[&[u32]] = &[&[], &[1], &[1, 1], &[1, 8], &[1, 8, 2]];
    let sent = with_unknown(&run(), paths);
    let made = kubelet.send("RunPodSandbox", sent, USUAL).await.unwrap();
    let pod = cri::RunPodSandboxResponse::decode(made).unwrap().pod_sandbox_id;
    assert_unknown(&node.last_bytes("RunPodSandbox"), paths);
    let ran: cri::RunPodSandboxRequest = node.last("RunPodSandbox");
    assert_eq!(ran.config.as_ref().unwrap().labels["app"], "changed");

    let paths: &[&[u32]] = &[
        &[],
        &[2],
        &[2, 1],
        &[2, 2],
        &[2, 15],
        &[2, 15, 1],
        &[2, 15, 2],
        &[3],
        &[3, 1],
        &[3, 8],
        &[3, 8, 2],
    ];
    let sent = with_unknown(&create(&pod), paths);
    let made = kubelet.send("CreateContainer", sent, USUAL).await.unwrap();
    let container = cri::CreateContainerResponse::decode(made).unwrap().container_id;
    assert_unknown(&node.last_bytes("CreateContainer"), paths);
    let created: cri::CreateContainerRequest = node.last("CreateContainer");
    assert_eq!(created.config.unwrap().linux.unwrap().resources.unwrap().cpu_shares, 7);

    let paths: &[&[u32]] = &[&[], &[2]];
    let sent = with_unknown(&update(&container, "memory.high"), paths);
    kubelet.send("UpdateContainerResources", sent, USUAL).await.unwrap();
    assert_unknown(&node.last_bytes("UpdateContainerResources"), paths);
    let updated: cri::UpdateContainerResourcesRequest = node.last("UpdateContainerResources");
    assert_eq!(updated.linux.unwrap().cpu_shares, 7);

    // These no hook can change: they arrive to the byte.
    let named = cri::StartContainerRequest { container_id: container };
    for method in ["StartContainer", "StopContainer", "RemoveContainer"] {
        let sent = with_unknown(&named, &[&[]]);
        kubelet.send(method, sent.clone(), USUAL).await.unwrap();
        assert_eq!(node.last_bytes(method), sent, "{method}");
    }
    let named = cri::StopPodSandboxRequest { pod_sandbox_id: pod };
    for method in ["StopPodSandbox", "RemovePodSandbox"] {
        let sent = with_unknown(&named, &[&[]]);
        kubelet.send(method, sent.clone(), USUAL).await.unwrap();
        assert_eq!(node.last_bytes(method), sent, "{method}");
    }
}

#[tokio::test]
async fn without_a_change_requests_and_answers_arrive_to_the_byte() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let answer = with_unknown(&cri::RunPodSandboxResponse { pod_sandbox_id: "p".into() }, &[&[]]);
    let given = answer.clone();
    node.answer("RunPodSandbox", move || Reply::of(vec![message(&given)]));
    // An order and a repetition that no encoder writes.
    let mut sent = vec![0x12, 4, b'k', b'a', b't', b'a'];
    sent.extend(with_unknown(&run(), &[&[1]]));
    let got = node.kubelet.send("RunPodSandbox", sent.clone(), USUAL).await.unwrap();
    assert_eq!(got, answer);
    assert_eq!(node.last_bytes("RunPodSandbox"), sent);
    let sent = with_unknown(&create("p"), &[&[2, 15, 1]]);
    node.kubelet.send("CreateContainer", sent.clone(), USUAL).await.unwrap();
    assert_eq!(node.last_bytes("CreateContainer"), sent);
    assert_eq!(server.hooks(), ["PreRunPodSandbox", "PreCreateContainer"]);
}

/// koord-runtime-proxy takes 4 MiB, kubelet and containerd 16.
#[tokio::test]
async fn messages_of_16_mib_pass_with_and_without_hooks() {
    const MOST: usize = 16 << 20;
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, changing());
    let node = plan.start().await;
    let pod = node.pod().await;
    let large = |size: usize| vec![b'x'; size];

    let mut request = create(&pod);
    let room = MOST - request.encoded_len() - 16;
    request.config.as_mut().unwrap().log_path = String::from_utf8(large(room)).unwrap();
    assert!(request.encoded_len() > MOST - 32);
    let mut answer = cri::CreateContainerResponse { container_id: "c".into() }.encode_to_vec();
    let mut tail = Message::default();
    tail.set_bytes(UNKNOWN, &large(MOST - 64));
    answer.extend_from_slice(&tail.encode());
    let given = message(&answer);
    node.answer("CreateContainer", move || Reply::of(vec![given.clone()]));
    let sent = request.encode_to_vec();
    let got = node.kubelet.send("CreateContainer", sent, USUAL).await.unwrap();
    assert!(got == answer, "the answer differs");
    let arrived: cri::CreateContainerRequest = node.last("CreateContainer");
    let config = arrived.config.unwrap();
    assert!(config.log_path == request.config.unwrap().log_path, "the request differs");
    assert_eq!(config.annotations["note"], "changed");
    assert_eq!(server.hooks(), ["PreRunPodSandbox", "PreCreateContainer"]);

    // One that no hook server is asked about.
    let given = message(&large(MOST));
    node.runtime.answer(move |_| Reply::of(vec![given.clone()]));
    let answer = node.kubelet.client.call(VERSION, message(&large(MOST))).await.unwrap();
    assert_eq!((answer.status(), answer.data.len()), ("0", MOST + 5));
    assert_eq!(node.received("Version")[0].data.len(), MOST + 5);
}

#[tokio::test]
async fn variables_keep_their_order_their_duplicates_and_their_bytes() {
    let plan = Plan::new();
    let script = HookScript {
        container: Arc::new(|_, asked| {
            let mut answer = echo(asked);
            answer.container_envs.remove("GONE");
            answer.container_envs.insert("M".into(), "changed".into());
            answer.container_envs.insert("NEW".into(), "1".into());
            answer
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", FAIL, script);
    let node = plan.start().await;
    let pod = node.pod().await;
    let mut request = create(&pod);
    request.config.as_mut().unwrap().envs = vec![
        env("Z", "last in the alphabet"),
        env("M", "first"),
        env("RAW", b"\xff\xfe".as_slice()),
        env("GONE", "soon"),
        env("TWICE", "1"),
        env("M", "second"),
        env("A", ""),
        env("TWICE", "2"),
    ];
    node.kubelet.create(&request).await.unwrap();
    let asked = server.calls().pop().unwrap();
    assert_eq!(
        asked.container().container_envs,
        map(&[
            ("Z", "last in the alphabet"),
            ("M", "second"),
            ("GONE", "soon"),
            ("TWICE", "2"),
            ("A", "")
        ])
    );
    let arrived: cri::CreateContainerRequest = node.last("CreateContainer");
    assert_eq!(
        arrived.config.unwrap().envs,
        [
            env("Z", "last in the alphabet"),
            env("M", "first"),
            env("RAW", b"\xff\xfe".as_slice()),
            env("TWICE", "1"),
            env("M", "changed"),
            env("A", ""),
            env("TWICE", "2"),
            env("NEW", "1"),
        ]
    );
}
