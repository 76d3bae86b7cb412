//! Whatever a hook server does, Ignore ignores it and Fail refuses the call before the runtime has
//! heard of it.

use std::{sync::Arc, time::Duration};

use prost::Message;
use tonic::{Code, Status};
use wharf_proto::{cri, hooks::PodSandboxHookResponse};
use wharf_testkit::{
    hook_server::{Answer, HookScript, HookServer, Transport, echo},
    runtime::{Reply, Runtime, Then, message},
};

use super::{
    node::{FAIL, IGNORE, Plan, file},
    samples::{create, map},
};
use crate::client::USUAL;

/// Serves at a path, until it is dropped.
type Serve = Box<dyn Fn(&std::path::Path) -> Box<dyn Send>>;

/// A server that answers with these bytes. Any h2 server will do for that.
fn raw(reply: impl Fn() -> Reply + Clone + Send + Sync + 'static) -> Serve {
    Box::new(move |path| {
        let server = Runtime::start(path);
        let reply = reply.clone();
        server.answer(move |_| reply());
        Box::new(server)
    })
}

fn scripted(script: HookScript) -> Serve {
    Box::new(move |path| Box::new(HookServer::serve(path, script.clone())))
}

fn treated(transport: Transport) -> Serve {
    scripted(HookScript { transport, ..HookScript::default() })
}

fn faults() -> Vec<(&'static str, Serve, Option<Code>)> {
    let pod = PodSandboxHookResponse { annotations: map(&[("a", "b")]), ..Default::default() };
    let (wrong_type, half) = (message(&pod.encode_to_vec()), message(&[0; 64]).slice(..20));
    let (cut, reset) = (half.clone(), half);
    let answering = |answer| scripted(HookScript { answer, ..HookScript::default() });
    vec![
        ("absent", Box::new(|_| Box::new(())), Some(Code::Unavailable)),
        ("hangs", answering(Answer::Never), Some(Code::Unavailable)),
        ("errs", answering(Answer::Error(Status::aborted("no"))), Some(Code::Unknown)),
        ("is mute", treated(Transport::Mute), Some(Code::Unavailable)),
        ("speaks HTTP/1", treated(Transport::Garbage), None),
        ("hangs up", treated(Transport::HangUp), None),
        ("answers no protobuf", raw(|| Reply::of(vec![message(&[0xff; 64])])), None),
        ("answers another type", raw(move || Reply::of(vec![wrong_type.clone()])), None),
        ("answers half a message", raw(move || Reply::of(vec![cut.clone()])), None),
        ("answers nothing", raw(|| Reply::of(Vec::new())), None),
        (
            "crashes in mid-answer",
            raw(move || Reply::then(vec![reset.clone()], Then::Reset(h2::Reason::INTERNAL_ERROR))),
            None,
        ),
    ]
}

#[tokio::test]
async fn a_server_that_fails_is_ignored_or_refuses_the_call() {
    for (name, serve, code) in faults() {
        for policy in [IGNORE, FAIL] {
            let plan = Plan::new();
            let socket = plan.socket("bad.json");
            let _server = serve(&socket);
            let node = plan.start_with(|options| options.budget = Duration::from_millis(400)).await;
            // The pod is made before the server is known.
            let pod = node.pod().await;
            node.write("bad.json", &file(&socket, policy));
            node.fixture.counts("wharf_proxy_hook_config_files{state=\"loaded\"} 1").await;
            for _ in 0..2 {
                let sent = create(&pod).encode_to_vec();
                let created = node.kubelet.send("CreateContainer", sent.clone(), USUAL).await;
                if policy == IGNORE {
                    created.unwrap_or_else(|status| panic!("{name}: {status}"));
                    assert_eq!(node.last_bytes("CreateContainer"), sent, "{name}");
                    continue;
                }
                let error = created.unwrap_err();
                assert!(error.message().starts_with("hook server err: bad.json"), "{error}");
                assert!(code.is_none_or(|code| code == error.code()), "{name}: {error}");
                let is_late = ["hangs", "is mute"].contains(&name);
                assert_eq!(
                    error.message().contains("did not finish in"),
                    is_late,
                    "{name}: {error}"
                );
                assert!(node.received("CreateContainer").is_empty(), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn a_megabyte_of_variables_is_carried_and_five_are_a_failure() {
    let plan = Plan::new();
    let script = HookScript {
        container: Arc::new(|_, asked| {
            let mut answer = echo(asked);
            let size: usize = asked.container_annotations["size"].parse().unwrap();
            for number in 0..100 {
                let value = "x".repeat(size / 100);
                answer.container_envs.insert(format!("BIG_{number:02}"), value);
            }
            answer
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", FAIL, script);
    let node = plan.start().await;
    let pod = node.pod().await;
    let sized = |size: &str| {
        let mut request = create(&pod);
        request.config.as_mut().unwrap().annotations = map(&[("size", size)]);
        request
    };
    let container = node.kubelet.create(&sized("1000000")).await.unwrap();
    let created: cri::CreateContainerRequest = node.last("CreateContainer");
    let envs = created.config.unwrap().envs;
    assert_eq!((envs.len(), envs[101].value.len()), (102, 10_000));
    // It is remembered whole.
    node.kubelet.stop(&container).await.unwrap();
    assert_eq!(server.calls().pop().unwrap().container().container_envs.len(), 102);

    let error = node.kubelet.create(&sized("5000000")).await.unwrap_err();
    assert!(error.message().starts_with("hook server err: a.json"), "{error}");
    node.kubelet.create(&sized("100")).await.unwrap();
}
