//! A proxy with a recording runtime and a recording hook server.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use serde_json::json;
use tonic::Status;
use wharf_proto::hooks::{
    ContainerResourceHookResponse, LinuxContainerResources, PodSandboxHookResponse,
};
use wharf_testkit::{
    client::Client,
    hook_server::{Answer, Behind, HookScript, HookServer},
    koord::{self, Koord},
    process::Process,
    runtime::{Reply, Runtime, Then, message},
};

use super::{
    seen::{Seen, encoded},
    step::Step,
};
use crate::support::{Bench, PATIENCE, exists};

/// Which proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    Koord,
    Wharf,
}

/// Which hook server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// koordlet's own.
    Koordlet,
    /// One that answers with what it was asked, for all hooks.
    Echo,
    /// One that answers with what it wants changed and nothing else.
    Terse,
    /// One whose answers are empty.
    Empty,
    /// One that fails, and must not.
    Failing,
}

pub(super) struct Lane {
    runtime: Runtime,
    hooks: HookServer,
    fails: Arc<AtomicBool>,
    client: Client,
    _processes: Vec<Process>,
    _bench: Bench,
}

impl Lane {
    /// `None` where this run does without the peers.
    pub(super) async fn start(proxy: Proxy, server: Server) -> Option<Self> {
        let bench = Bench::new();
        let fails = Arc::new(AtomicBool::new(false));
        let runtime = runtime(&bench.path("runtime.sock"), fails.clone());
        let folder = bench.path("hooks");
        std::fs::create_dir(&folder).unwrap();
        let (hooks, koordlet) = hook_server(&bench, &folder, server).await?;
        let mut processes: Vec<_> = koordlet.into_iter().map(|koordlet| koordlet.process).collect();
        let socket = match proxy {
            Proxy::Koord => {
                let started = koord::runtime_proxy(bench.folder.path(), runtime.path(), &folder);
                let koord = started.await.unwrap()?;
                processes.push(koord.process);
                koord.socket
            }
            Proxy::Wharf => {
                let socket = bench.path("wharf.sock");
                let state = bench.path("state");
                let paths = [&socket, runtime.path(), &folder, &state];
                let paths = paths.map(|path| path.to_str().unwrap());
                let args =
                    ["proxy", "--listen", paths[0], "--runtime", paths[1], "--hooks-dir", paths[2]];
                let args = [&args[..], &["--state-dir", paths[3]]].concat();
                let mut wharf = bench.start("wharf", &args);
                wharf.ready(PATIENCE, "its socket", || exists(&socket)).await.unwrap();
                processes.push(wharf);
                socket
            }
        };
        let client = Client::dial(&socket).await.with("x-trace", "1");
        Some(Lane { runtime, hooks, fails, client, _processes: processes, _bench: bench })
    }

    /// Plays the script in a version of CRI, and tells what was seen.
    pub(super) async fn play(&self, version: &str, script: &[Step]) -> Seen {
        let mut seen = Seen::default();
        for step in script {
            self.fails.store(step.fails, Ordering::SeqCst);
            let (calls, asked) = (self.runtime.calls().len(), self.hooks.calls().len());
            let method = format!("/{version}.RuntimeService/{}", step.method);
            let sent = encoded(step);
            let answer = self.client.call(&method, sent.clone()).await;
            seen.answer(step, &answer);
            for call in &self.runtime.calls()[calls..] {
                seen.runtime(step, &sent, call);
            }
            for call in &self.hooks.calls()[asked..] {
                seen.hook(step, call);
            }
        }
        seen
    }
}

/// A runtime that names what it makes, and fails what it is told to fail.
fn runtime(path: &Path, fails: Arc<AtomicBool>) -> Runtime {
    let runtime = Runtime::start(path);
    let (pods, containers) = (AtomicUsize::new(0), AtomicUsize::new(0));
    runtime.answer(move |method| {
        if fails.load(Ordering::SeqCst) {
            let status = [("grpc-status", "9"), ("grpc-message", "not like this")];
            let status = status.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
            return Reply::then(Vec::new(), Then::Trailers(status.into()));
        }
        let named = |counter: &AtomicUsize, kind: &str| {
            let name = format!("{kind}-{}", counter.fetch_add(1, Ordering::SeqCst) + 1);
            [&[0x0a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat()
        };
        let answer = match method.rsplit('/').next() {
            Some("RunPodSandbox") => named(&pods, "pod"),
            Some("CreateContainer") => named(&containers, "container"),
            _ => Vec::new(),
        };
        Reply::of(vec![message(&answer)])
    });
    runtime
}

async fn hook_server(
    bench: &Bench,
    folder: &Path,
    server: Server,
) -> Option<(HookServer, Option<Koord>)> {
    let path = bench.path("recorder.sock");
    let (script, policy) = match server {
        Server::Koordlet => {
            let koordlet = koord::koordlet_hooks(bench.folder.path(), &path, folder, "1").await;
            let koordlet = koordlet.unwrap()?;
            let behind = Some(Behind::at(&koordlet.socket));
            let script = HookScript { behind, ..HookScript::default() };
            return Some((HookServer::serve(&path, script), Some(koordlet)));
        }
        Server::Echo => (HookScript::echo(), "Ignore"),
        Server::Terse => (terse(), "Fail"),
        Server::Empty => (HookScript::default(), "Fail"),
        Server::Failing => {
            let answer = Answer::Error(Status::resource_exhausted("no more"));
            (HookScript { answer, ..HookScript::default() }, "Fail")
        }
    };
    let entry =
        json!({ "remote-endpoint": path, "failure-policy": policy, "runtime-hooks": HOOKS });
    std::fs::write(folder.join("recorder.json"), entry.to_string()).unwrap();
    Some((HookServer::serve(&path, script), None))
}

const HOOKS: [&str; 7] = [
    "PreRunPodSandbox",
    "PostStopPodSandbox",
    "PreCreateContainer",
    "PreStartContainer",
    "PostStartContainer",
    "PreUpdateContainerResources",
    "PostStopContainer",
];

fn terse() -> HookScript {
    HookScript {
        pod: Arc::new(|hook, _| PodSandboxHookResponse {
            labels: map("hooked", hook),
            annotations: map("note", hook),
            cgroup_parent: "/hooked/pod".to_owned(),
            resources: Some(wanted(hook)),
            ..PodSandboxHookResponse::default()
        }),
        container: Arc::new(|hook, _| ContainerResourceHookResponse {
            container_annotations: map("hooked", hook),
            container_resources: Some(wanted(hook)),
            pod_cgroup_parent: "/hooked/container".to_owned(),
            container_envs: map("HOOKED", hook),
            ..ContainerResourceHookResponse::default()
        }),
        ..HookScript::default()
    }
}

fn wanted(hook: &str) -> LinuxContainerResources {
    match hook {
        "PreCreateContainer" => LinuxContainerResources {
            cpu_shares: 1001,
            cpuset_cpus: "1".to_owned(),
            unified: map("memory.high", "9"),
            ..LinuxContainerResources::default()
        },
        "PreStartContainer" => LinuxContainerResources {
            cpu_period: 60_000,
            cpuset_mems: "0".to_owned(),
            ..LinuxContainerResources::default()
        },
        _ => LinuxContainerResources { cpu_quota: 30_000, ..LinuxContainerResources::default() },
    }
}

fn map(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}
