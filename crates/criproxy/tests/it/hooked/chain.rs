//! Several hook servers: in their order, in conflict, in their time, and gone.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{io::AsyncReadExt, net::UnixListener};
use tonic::{Code, Status};
use wharf_criproxy::Conflict;
use wharf_proto::cri;
use wharf_testkit::hook_server::{Answer, HookScript, HookServer, echo};

use super::{
    node::{FAIL, IGNORE, Node, Plan, file},
    samples::{create, env, map, run},
};
use crate::{
    client::USUAL,
    fixture::{DEADLINE, soon},
};

/// Answers with what it was told, one variable more and a share of its own.
fn marking(name: &'static str, cpu_shares: i64) -> HookScript {
    HookScript {
        container: Arc::new(move |_, asked| {
            let mut answer = echo(asked);
            answer.container_envs.insert(name.to_owned(), "seen".to_owned());
            if cpu_shares > 0 {
                answer.container_resources.as_mut().unwrap().cpu_shares = cpu_shares;
            }
            answer
        }),
        ..HookScript::default()
    }
}

fn shares(node: &Node) -> i64 {
    let created: cri::CreateContainerRequest = node.last("CreateContainer");
    created.config.unwrap().linux.unwrap().resources.unwrap().cpu_shares
}

/// koord-runtime-proxy asks one of them, which one is left to chance.
#[tokio::test]
async fn all_servers_are_asked_in_order_and_each_sees_what_others_changed() {
    let plan = Plan::new();
    let servers =
        ["a.json", "b.json", "c.json"].map(|name| plan.server(name, FAIL, marking(name, 0)));
    let mut keys: serde_json::Value =
        serde_json::from_str(&file(&plan.socket("a.json"), FAIL)).unwrap();
    keys["order"] = json!(10);
    plan.file("a.json", &keys.to_string());
    let node = plan.start().await;
    node.container().await;
    let told =
        |server: &HookServer| server.calls().pop().unwrap().container().container_envs.clone();
    let [a, b, c] = &servers;
    assert_eq!(told(b), map(&[("A", "2"), ("B", "1")]));
    assert_eq!(told(c), map(&[("A", "2"), ("B", "1"), ("b.json", "seen")]));
    let all = map(&[("A", "2"), ("B", "1"), ("b.json", "seen"), ("c.json", "seen")]);
    assert_eq!(told(a), all);
    let created: cri::CreateContainerRequest = node.last("CreateContainer");
    let seen = ["a.json", "b.json", "c.json"].map(|name| env(name, "seen"));
    assert_eq!(created.config.unwrap().envs, [&[env("B", "1"), env("A", "2")], &seen[..]].concat());
}

#[tokio::test]
async fn two_servers_that_fight_over_a_field() {
    for (conflict, policy, shared) in [
        (Conflict::Refuse, IGNORE, Some((100, false))),
        (Conflict::Refuse, FAIL, None),
        (Conflict::First, FAIL, Some((100, true))),
        (Conflict::Last, FAIL, Some((200, true))),
    ] {
        let plan = Plan::new();
        let _first = plan.server("a.json", policy, marking("FIRST", 100));
        let _second = plan.server("b.json", policy, marking("SECOND", 200));
        let node = plan.start_with(|options| options.conflict = conflict).await;
        let pod = node.pod().await;
        let created = node.kubelet.create(&create(&pod)).await;
        let Some((cpu_shares, second_counts)) = shared else {
            let error = created.unwrap_err();
            assert_eq!(error.code(), Code::FailedPrecondition);
            let text = error.message();
            assert!(text.contains("b.json") && text.contains("cpu_shares by a.json"), "{text}");
            assert!(node.received("CreateContainer").is_empty());
            continue;
        };
        created.unwrap();
        assert_eq!(shares(&node), cpu_shares, "{conflict:?}");
        let created: cri::CreateContainerRequest = node.last("CreateContainer");
        let envs = created.config.unwrap().envs;
        assert!(envs.contains(&env("FIRST", "seen")));
        assert_eq!(envs.contains(&env("SECOND", "seen")), second_counts, "{conflict:?}");
        let resolution = conflict.name();
        let line = format!(
            "wharf_proxy_hook_conflicts_total{{server=\"b.json\",owner=\"a.json\",resolution=\"{resolution}\"}} 1"
        );
        node.fixture.counts(&line).await;
    }
}

/// koord-runtime-proxy waits until the caller's time is up, and then the runtime has none.
#[tokio::test]
async fn a_server_that_hangs_and_is_ignored_leaves_the_runtime_its_time() {
    const PATIENCE: Duration = Duration::from_secs(30);
    /// The share of the server that hangs.
    const HANGS: Duration = Duration::from_millis(500);
    let plan = Plan::new();
    let hanging = HookScript { answer: Answer::Never, ..HookScript::default() };
    let server = plan.server("a.json", IGNORE, hanging);
    let other = plan.server("b.json", IGNORE, HookScript::echo());
    let node = plan.start_with(|options| options.budget = HANGS * 2).await;
    let mut fields = USUAL.to_vec();
    fields.retain(|(name, _)| *name != "grpc-timeout");
    fields.push(("grpc-timeout", b"30S"));
    let begun = Instant::now();
    let sent = prost::Message::encode_to_vec(&run());
    node.kubelet.send("RunPodSandbox", sent, &fields).await.unwrap();
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
    // A runtime that believed in all of the caller's time would work for nobody in the end.
    let [call] = &node.received("RunPodSandbox")[..] else { panic!("one call") };
    let left = call.headers.iter().find(|(name, _)| name == "grpc-timeout").unwrap();
    let left = str::from_utf8(&left.1).unwrap();
    let left: u64 = left.strip_suffix('u').unwrap_or_else(|| panic!("{left}")).parse().unwrap();
    let spent = HANGS.as_micros() as u64;
    assert!(left <= 30_000_000 - spent, "{left} us of 30 s are left after {spent} us");
    assert_eq!((server.calls().len(), other.calls().len()), (1, 1));
    let line = "wharf_proxy_hook_calls_total{server=\"a.json\",hook=\"PreRunPodSandbox\",outcome=\"timeout\"} 1";
    node.fixture.counts(line).await;
}

/// koord-runtime-proxy may not try again for two minutes.
#[tokio::test]
async fn a_server_that_flaps_is_asked_whenever_it_is_there() {
    let plan = Plan::new();
    let socket = plan.socket("a.json");
    plan.file("a.json", &file(&socket, IGNORE));
    let node = plan.start().await;
    for round in 0..5 {
        node.pod().await;
        let server = HookServer::serve(&socket, HookScript::echo());
        let asked = async {
            while server.calls().is_empty() {
                node.pod().await;
            }
        };
        tokio::time::timeout(DEADLINE, asked).await.unwrap_or_else(|_| panic!("round {round}"));
        server.kill().await;
    }
    let lost = "wharf_proxy_hook_calls_total{server=\"a.json\",hook=\"PreRunPodSandbox\",outcome=\"Unavailable\"} 5";
    node.fixture.counts(lost).await;
}

/// Kubelets take some codes of the runtime for success, such as NOT_FOUND of a stop.
#[tokio::test]
async fn the_code_of_a_server_is_told_and_not_passed_on() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let endpoint = plan.socket("a.json");
    let node = plan.start().await;
    for (code, told, text) in [
        (Code::PermissionDenied, Code::Unknown, "PermissionDenied: not here"),
        (Code::NotFound, Code::Unknown, "NotFound: not here"),
        (Code::Unavailable, Code::Unavailable, "not here"),
    ] {
        let refused = Answer::Error(Status::new(code, "not here"));
        server.change(|script| script.answer = refused);
        let error = node.kubelet.run(&run()).await.unwrap_err();
        let text =
            format!("hook server err: a.json at {}, PreRunPodSandbox: {text}", endpoint.display());
        assert_eq!((error.code(), error.message()), (told, text.as_str()));
    }
    assert_eq!(node.runtime.calls(), []);
    node.fixture.counts("wharf_proxy_hook_failures_total{server=\"a.json\",hook=\"PreRunPodSandbox\",policy=\"Fail\"} 3").await;
}

/// koord-runtime-proxy looks for files that are gone once a minute, and keeps their connections.
#[tokio::test]
async fn a_server_whose_file_is_removed_is_asked_no_more_and_loses_its_connection() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    plan.file("b.json", &file(&plan.socket("b.json"), IGNORE));
    let other = UnixListener::bind(plan.socket("b.json")).unwrap();
    let node = plan.start().await;
    let (mut connection, _) = soon(other.accept()).await.unwrap();
    node.remove("a.json");
    node.remove("b.json");
    // It is over once the proxy has hung up, with whatever it sent before.
    soon(connection.read_to_end(&mut Vec::new())).await.unwrap();
    node.fixture.counts("wharf_proxy_hook_config_files{state=\"loaded\"} 0").await;
    node.pod().await;
    assert_eq!(server.calls(), []);
    node.write("a.json", &file(server.path(), FAIL));
    node.fixture.counts("wharf_proxy_hook_config_files{state=\"loaded\"} 1").await;
    node.pod().await;
    assert_eq!(server.hooks(), ["PreRunPodSandbox"]);
}
