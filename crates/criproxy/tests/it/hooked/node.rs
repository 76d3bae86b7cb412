//! A proxy with hook servers, a kubelet before it and a runtime behind it.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, Permissions},
    future::Future,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use prost::Message;
use serde_json::json;
use tempfile::TempDir;
use tonic::Code;
use wharf_criproxy::{HookPoint, ProxyOptions};
use wharf_proto::cri;
use wharf_testkit::{
    hook_server::{HookScript, HookServer},
    runtime::{Received, Reply, Runtime, Then, message},
};

use super::{kubelet::Kubelet, past::Past, samples};
use crate::fixture::{DRAIN, Fixture, soon};

pub(crate) const FAIL: &str = "Fail";
pub(crate) const IGNORE: &str = "Ignore";

/// A folder in which a node is going to start.
pub(crate) struct Plan(TempDir);

impl Plan {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        DirBuilder::new().mode(0o755).create(folder.path().join("hooks")).unwrap();
        Self(folder)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// A hook server for all hooks, and its file.
    pub(crate) fn server(&self, name: &str, policy: &str, script: HookScript) -> HookServer {
        let socket = self.socket(name);
        self.file(name, &file(&socket, policy));
        HookServer::serve(&socket, script)
    }

    /// The same, with a file that names each hook in `failure-policies`.
    pub(crate) fn strict_server(&self, name: &str, policy: &str, script: HookScript) -> HookServer {
        let socket = self.socket(name);
        self.file(name, &file_naming_hooks(&socket, policy));
        HookServer::serve(&socket, script)
    }

    /// The socket that the server of a file gets.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder().join(name).with_extension("sock")
    }

    pub(crate) fn file(&self, name: &str, text: &str) {
        write(self.folder(), name, text);
    }

    pub(crate) async fn start(self) -> Node {
        self.start_with(|_| {}).await
    }

    pub(crate) async fn start_with(self, change: impl FnOnce(&mut ProxyOptions)) -> Node {
        Node::start(self.0, change, |_, _| {}).await
    }

    /// Before a runtime that answers what the proxy asks for itself by this script.
    pub(crate) async fn start_telling(
        self,
        tale: impl Fn(&Ids, &str) -> Reply + Send + Sync + 'static,
    ) -> Node {
        Node::start(
            self.0,
            |_| {},
            |runtime, ids| {
                runtime.tell(move |method| tale(&ids, method));
            },
        )
        .await
    }

    /// Before a runtime that knows more than it was asked to make.
    pub(crate) async fn start_before(self, past: Past) -> Node {
        Node::start(self.0, |_| {}, |runtime, _| past.of(runtime)).await
    }
}

/// The file of a server for all hooks.
pub(crate) fn file(socket: &Path, policy: &str) -> String {
    let hooks = HookPoint::ALL.map(HookPoint::name);
    let keys = json!({"remote-endpoint": socket, "failure-policy": policy, "runtime-hooks": hooks});
    keys.to_string()
}

/// The file of a server for all hooks, which names each of them in `failure-policies`.
pub(crate) fn file_naming_hooks(socket: &Path, policy: &str) -> String {
    let hooks = HookPoint::ALL.map(HookPoint::name);
    let policies: BTreeMap<_, _> = hooks.map(|hook| (hook, policy)).into();
    let keys =
        json!({"remote-endpoint": socket, "failure-policies": policies, "runtime-hooks": hooks});
    keys.to_string()
}

pub(crate) struct Node {
    pub(crate) fixture: Fixture,
    pub(crate) runtime: Runtime,
    pub(crate) kubelet: Kubelet,
    pub(crate) ids: Ids,
}

impl Node {
    async fn start(
        folder: TempDir,
        change: impl FnOnce(&mut ProxyOptions),
        script: impl FnOnce(&Runtime, Ids),
    ) -> Self {
        let runtime = Runtime::start(&folder.path().join("runtime.sock"));
        let ids = Ids::default();
        ids.script(&runtime);
        script(&runtime, ids.clone());
        let fixture = Fixture::within(folder, DRAIN, change).await;
        fixture.connected(true).await;
        let kubelet = Kubelet::dial(&fixture.socket()).await;
        Self { fixture, runtime, kubelet, ids }
    }

    /// Another proxy in the place of this one; everything else goes on.
    pub(crate) async fn restart_proxy(self) -> Node {
        let Node { fixture, runtime, kubelet, ids } = self;
        kubelet.client.vanish().await;
        let fixture = Fixture::within(fixture.stop().await, DRAIN, |_| {}).await;
        fixture.connected(true).await;
        let kubelet = Kubelet::dial(&fixture.socket()).await;
        Node { fixture, runtime, kubelet, ids }
    }

    /// Another runtime in the place of this one, once `meanwhile` is over. It forgets what it was
    /// asked, but not what it made.
    pub(crate) async fn restart_runtime(self, meanwhile: impl Future) -> Node {
        let Node { fixture, runtime, kubelet, ids } = self;
        runtime.kill().await;
        fixture.connected(false).await;
        soon(meanwhile).await;
        let runtime = Runtime::start(&fixture.runtime_socket());
        ids.script(&runtime);
        fixture.connected(true).await;
        Node { fixture, runtime, kubelet, ids }
    }

    /// A pod such as kubelets make.
    pub(crate) async fn pod(&self) -> String {
        self.kubelet.run(&samples::run()).await.unwrap()
    }

    /// A pod and a container in it.
    pub(crate) async fn container(&self) -> (String, String) {
        let pod = self.pod().await;
        let container = self.kubelet.create(&samples::create(&pod)).await.unwrap();
        (pod, container)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        write(self.fixture.folder(), name, text);
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.fixture.folder().join("hooks").join(name)).unwrap();
    }

    /// What the runtime was asked with a method so far.
    pub(crate) fn received(&self, method: &str) -> Vec<Received> {
        let mut calls = self.runtime.calls();
        calls.retain(|call| call.method.ends_with(&format!("/{method}")));
        calls
    }

    /// The last of it, as a message.
    pub(crate) fn last<Q: Message + Default>(&self, method: &str) -> Q {
        Q::decode(self.last_bytes(method).as_slice()).unwrap()
    }

    pub(crate) fn last_bytes(&self, method: &str) -> Vec<u8> {
        let call = self.received(method).pop().unwrap_or_else(|| panic!("no {method}"));
        call.data[5..].to_vec()
    }

    /// How many records there are.
    pub(crate) async fn has_records(&self, pods: usize, containers: usize) {
        self.fixture.counts(&format!("wharf_proxy_records{{kind=\"pod\"}} {pods}")).await;
        let line = format!("wharf_proxy_records{{kind=\"container\"}} {containers}");
        self.fixture.counts(&line).await;
    }

    /// The runtime answers this method like this, and the others as before.
    pub(crate) fn answer(
        &self,
        method: &'static str,
        reply: impl Fn() -> Reply + Send + Sync + 'static,
    ) {
        let ids = self.ids.clone();
        self.runtime.answer(move |called| match called.rsplit('/').next() {
            Some(name) if name == method => reply(),
            _ => ids.reply(called),
        });
    }

    /// The runtime fails this method.
    pub(crate) fn fail(&self, method: &'static str, code: Code, text: &'static str) {
        self.answer(method, move || failing(code, text));
    }

    /// The runtime does everything again.
    pub(crate) fn heal(&self) {
        let ids = self.ids.clone();
        self.runtime.answer(move |method| ids.reply(method));
    }
}

/// An answer that is an error.
pub(crate) fn failing(code: Code, text: &str) -> Reply {
    let code = i32::from(code).to_string().into_bytes();
    let fields = [("grpc-status", code), ("grpc-message", text.as_bytes().to_vec())];
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).to_vec();
    Reply::then(Vec::new(), Then::Trailers(fields))
}

/// A runtime that makes whatever is asked for, under ids of its own. It lists what it made, and
/// tells no more of it.
#[derive(Clone, Default)]
pub(crate) struct Ids(Arc<Mutex<Vec<String>>>);

impl Ids {
    pub(crate) fn script(&self, runtime: &Runtime) {
        let ids = self.clone();
        runtime.answer(move |method| ids.reply(method));
        let ids = self.clone();
        runtime.tell(move |method| ids.list(method));
    }

    /// The runtime no longer has these. Ids are not given again.
    pub(crate) fn forget(&self, lost: &[String]) {
        for id in self.0.lock().unwrap().iter_mut().filter(|id| lost.contains(id)) {
            *id = format!("lost {id}");
        }
    }

    pub(crate) fn reply(&self, method: &str) -> Reply {
        let kind = match method.rsplit('/').next() {
            Some("RunPodSandbox") => "pod",
            Some("CreateContainer") => "container",
            _ => return Reply::default(),
        };
        let mut made = self.0.lock().unwrap();
        let id = format!("{kind}-{}", made.len());
        made.push(id.clone());
        // The id is the first field of both answers.
        let answer = cri::RunPodSandboxResponse { pod_sandbox_id: id };
        Reply::of(vec![message(&answer.encode_to_vec())])
    }

    pub(crate) fn list(&self, method: &str) -> Reply {
        let kind = match method.rsplit('/').next() {
            Some("ListPodSandbox") => "pod",
            Some("ListContainers") => "container",
            _ => return failing(Code::NotFound, "no more is known"),
        };
        let made = self.0.lock().unwrap();
        let ids = made.iter().filter(|id| id.starts_with(kind)).cloned();
        // The id is the first field of both items, and they are the first field of both lists.
        let items = ids.map(|id| cri::PodSandbox { id, ..Default::default() }).collect();
        let list = cri::ListPodSandboxResponse { items };
        Reply::of(vec![message(&list.encode_to_vec())])
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join("hooks").join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
}
