//! Mandatory hooks stay mandatory: over restarts, bad files, deleted files and folders that are
//! moved away.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use prost_reflect::prost::Message;
use rustix::process::Signal;
use serde_json::{Value, json};
use tonic::{Code, Status};
use wharf_proto::cri::RunPodSandboxRequest;
use wharf_testkit::{
    client::Client,
    hook_server::{HookScript, HookServer},
    process::{Process, wait_for},
    runtime::Runtime,
};

use crate::{
    proxy::{address, hook_folder, launch, recording},
    support::{Bench, PATIENCE, get, wharf},
};

/// A runtime, a hook server with a file, and a proxy between them and us.
struct Node {
    proxy: Process,
    address: String,
    flags: Vec<&'static str>,
    client: Client,
    runtime: Runtime,
    hooks: Option<HookServer>,
    bench: Bench,
}

impl Node {
    /// With a file for the hook server that has these keys besides its own.
    async fn start(keys: Value) -> Self {
        Node::start_with(Some(keys), &[]).await
    }

    async fn start_with(keys: Option<Value>, flags: &[&'static str]) -> Self {
        let bench = Bench::new();
        let runtime = recording(&bench);
        let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::echo());
        fs::create_dir(hook_folder(&bench)).unwrap();
        if let Some(keys) = keys {
            write_file(&bench, &keys);
        }
        let (proxy, address, client) = start(&bench, &runtime, flags).await;
        let hooks = Some(hooks);
        Node { proxy, address, flags: flags.to_vec(), client, runtime, hooks, bench }
    }

    /// Another proxy in the place of this one.
    async fn restart(self) -> Node {
        let Node { proxy, flags, runtime, hooks, bench, .. } = self;
        assert!(proxy.stop(PATIENCE).await.unwrap().success());
        let (proxy, address, client) = start(&bench, &runtime, &flags).await;
        Node { proxy, address, flags, client, runtime, hooks, bench }
    }

    fn file(&self) -> PathBuf {
        hook_folder(&self.bench).join("test.json")
    }

    async fn run_pod(&self) -> Result<(), Status> {
        let request = RunPodSandboxRequest::default().encode_to_vec();
        self.client.call("/runtime.v1.RuntimeService/RunPodSandbox", request).await.map(drop)
    }

    /// Runs a pod, about which the hook server is asked.
    async fn run_hooked_pod(&self) {
        let before = self.asked();
        self.run_pod().await.unwrap();
        assert_eq!(self.asked(), before + 1, "the pod ran without its hook");
    }

    /// Waits for a pod about which nobody is asked. None is refused until then.
    async fn lets_pods_run_unhooked(&self) {
        let unhooked = || async {
            let before = self.asked();
            self.run_pod().await.unwrap();
            (self.asked() == before).then_some(())
        };
        wait_for(PATIENCE, "a pod without hooks", unhooked).await.unwrap();
        self.is_ready(200, &[]).await;
    }

    fn asked(&self) -> usize {
        self.hooks.as_ref().map_or(0, |hooks| hooks.calls().len())
    }

    fn pods(&self) -> usize {
        self.runtime.calls().iter().filter(|call| call.method.ends_with("RunPodSandbox")).count()
    }

    /// Asserts that a pod is refused, for this reason, before the runtime hears of it.
    async fn refuses(&self, reason: &str) {
        let before = self.pods();
        let error = self.run_pod().await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable, "{error}");
        assert!(error.message().starts_with("hook server err: test.json"), "{error}");
        assert!(error.message().contains(reason), "no {reason:?} in {error}");
        assert_eq!(self.pods(), before);
    }

    /// Waits until `/readyz` answers with this code and a text that holds all of these.
    async fn is_ready(&self, code: u16, wanted: &[&str]) {
        let url = format!("http://{}/readyz", self.address);
        let answered = || async {
            let (found, text) = get(&url);
            (found == code && wanted.iter().all(|it| text.contains(it))).then_some(())
        };
        let waited = wait_for(PATIENCE, "/readyz", answered).await;
        waited.unwrap_or_else(|error| panic!("{error:#}: {:?}", get(&url)));
    }

    fn counts(&self, line: &str) {
        let (_, text) = get(&format!("http://{}/metrics", self.address));
        assert!(text.lines().any(|found| found == line), "no {line} in {text}");
    }

    fn ask(&self, command: &str, more: &[&str]) -> (bool, String) {
        let control = self.bench.path("state/control.sock");
        let output =
            wharf(&[&["proxy", command, "--control", control.to_str().unwrap()], more].concat());
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// The one server that `wharf proxy status` shows.
    fn status(&self) -> Value {
        let (done, text) = self.ask("status", &["-o", "json"]);
        assert!(done, "{text}");
        let status: Value = serde_json::from_str(&text).unwrap();
        let [server] = &status["servers"].as_array().unwrap()[..] else { panic!("{status}") };
        server.clone()
    }
}

async fn start(bench: &Bench, runtime: &Runtime, flags: &[&str]) -> (Process, String, Client) {
    let mut proxy = launch(bench, runtime.path(), flags);
    let address = address(&mut proxy).await;
    (proxy, address, Client::dial(&bench.path("proxy.sock")).await)
}

fn write_file(bench: &Bench, keys: &Value) {
    let mut entry = json!({
        "remote-endpoint": bench.path("hooks.sock"),
        "runtime-hooks": ["PreRunPodSandbox"],
    });
    entry.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    fs::write(hook_folder(bench).join("test.json"), entry.to_string()).unwrap();
}

/// Makes a file one that is refused.
type Spoil = fn(&Path);

#[tokio::test]
async fn a_file_that_is_refused_after_a_restart_keeps_its_last_good_version() {
    let break_json: Spoil = |path| fs::write(path, "{").unwrap();
    let open: Spoil = |path| fs::set_permissions(path, Permissions::from_mode(0o664)).unwrap();
    for (reason, spoil) in [("EOF", break_json), ("0664", open)] {
        let mut node = Node::start(json!({ "failure-policy": "Fail" })).await;
        node.run_hooked_pod().await;
        spoil(&node.file());
        node.is_ready(503, &["test.json", reason]).await;
        node.run_hooked_pod().await;
        node = node.restart().await;
        node.is_ready(503, &["test.json", reason, "last good version"]).await;
        node.run_hooked_pod().await;
        let status = node.status();
        assert_eq!(
            (&status["state"], &status["effect"]),
            (&json!("refused"), &json!("asked-as-before"))
        );
        assert!(status["error"].as_str().unwrap().contains(reason), "{status}");
        node.hooks.take().unwrap().kill().await;
        node.refuses("hooks.sock").await;
    }
}

#[tokio::test]
async fn what_is_kept_is_for_the_proxy_alone() {
    let node = Node::start(json!({ "failure-policy": "Fail" })).await;
    let mode = |path: &str| fs::metadata(node.bench.path(path)).unwrap().permissions().mode();
    assert_eq!(mode("state") & 0o777, 0o700);
    assert_eq!(mode("state/servers/test.json") & 0o777, 0o600);
    assert_eq!(mode("state/control.sock") & 0o777, 0o600);
    let Node { proxy, bench, .. } = node;
    assert!(proxy.stop(PATIENCE).await.unwrap().success());
    assert!(!bench.path("state/control.sock").exists());

    // Who could write there could have hooks run on every pod.
    fs::set_permissions(bench.path("state"), Permissions::from_mode(0o777)).unwrap();
    let mut proxy = launch(&bench, &bench.path("runtime.sock"), &[]);
    assert!(!proxy.wait(PATIENCE).await.unwrap().success());
    assert!(
        proxy.tail().contains("state folder") && proxy.tail().contains("0777"),
        "{}",
        proxy.tail()
    );
}

#[tokio::test]
async fn a_folder_that_is_moved_away_changes_nothing() {
    let mut node = Node::start(json!({ "failure-policy": "Fail" })).await;
    let (folder, away) = (hook_folder(&node.bench), node.bench.path("away"));
    fs::rename(&folder, &away).unwrap();
    node.is_ready(503, &["hookserver.d", "it is gone"]).await;
    node.run_hooked_pod().await;
    node = node.restart().await;
    node.is_ready(503, &["hookserver.d", "it is gone"]).await;
    node.run_hooked_pod().await;
    assert!(!folder.exists());
    fs::rename(&away, &folder).unwrap();
    node.is_ready(200, &[]).await;
    node.run_hooked_pod().await;
}

/// As editors and configuration tools write files.
#[tokio::test]
async fn a_file_that_is_deleted_and_written_again_is_in_force_meanwhile() {
    let node = Node::start(json!({ "failure-policy": "Fail" })).await;
    let text = fs::read(node.file()).unwrap();
    for _ in 0..3 {
        fs::remove_file(node.file()).unwrap();
        let deleted = Instant::now();
        while deleted.elapsed() < Duration::from_millis(150) {
            node.run_hooked_pod().await;
        }
        fs::write(node.file(), &text).unwrap();
        node.run_hooked_pod().await;
    }
    // One that stays away is not asked any more.
    fs::remove_file(node.file()).unwrap();
    node.lets_pods_run_unhooked().await;
}

/// A hook server that stops takes its file away, and answers until the proxy asks no more.
#[tokio::test]
async fn a_server_that_leaves_in_order_fails_no_call() {
    let node = Node::start_with(None, &[]).await;
    let (socket, folder) = (node.bench.path("log.sock"), hook_folder(&node.bench));
    let paths = [&socket, &folder].map(|path| path.to_str().unwrap());
    let args = ["hooks", "log", "--socket", paths[0], "--config-dir", paths[1]];
    let args = [&args[..], &["--failure-policy", "Fail"]].concat();
    let mut server = node.bench.start("hooks", &args);
    let file = folder.join("wharf-log.json");
    server.ready(PATIENCE, "its file", || async { file.exists().then_some(()) }).await.unwrap();
    let is_known = || async { node.ask("status", &[]).1.contains("wharf-log.json").then_some(()) };
    wait_for(PATIENCE, "the server", is_known).await.unwrap();
    node.run_pod().await.unwrap();
    server.signal(Signal::TERM).unwrap();
    let is_over = || async {
        node.run_pod().await.unwrap();
        (!node.ask("status", &[]).1.contains("wharf-log.json")).then_some(())
    };
    wait_for(PATIENCE, "its end", is_over).await.unwrap();
    assert!(server.wait(PATIENCE).await.unwrap().success());
}

#[tokio::test]
async fn a_required_server_refuses_pods_until_it_is_back_or_forgotten() {
    let required = || json!({ "failure-policy": "Fail", "required": true });
    let mut node = Node::start(required()).await;
    let (done, text) = node.ask("forget", &["test"]);
    assert!(!done && text.contains("test.json") && text.contains("is there"), "{text}");
    for restarted in [false, true] {
        node.run_hooked_pod().await;
        fs::remove_file(node.file()).unwrap();
        node.is_ready(503, &["test.json", "required", "wharf proxy forget test"]).await;
        if restarted {
            node = node.restart().await;
            node.is_ready(503, &["test.json", "required", "wharf proxy forget test"]).await;
        }
        node.refuses("wharf proxy forget test").await;
        node.counts("wharf_proxy_hook_servers_missing 1");
        let status = node.status();
        let shown = ["name", "state", "effect", "required"].map(|key| status[key].clone());
        assert_eq!(shown, [json!("test"), json!("missing"), json!("refusing"), json!(true)]);
        write_file(&node.bench, &required());
        node.is_ready(200, &[]).await;
        node.counts("wharf_proxy_hook_servers_missing 0");
    }
    fs::remove_file(node.file()).unwrap();
    node.is_ready(503, &["test.json"]).await;
    let (done, text) = node.ask("forget", &["other"]);
    assert!(!done && text.contains("no hook server \"other\" is missing"), "{text}");
    let (done, text) = node.ask("forget", &["test"]);
    assert!(done && text.contains("pods run without it"), "{text}");
    for _ in 0..2 {
        node.is_ready(200, &[]).await;
        node.run_pod().await.unwrap();
        node = node.restart().await;
    }
}

#[tokio::test]
async fn a_file_that_says_it_is_not_required_any_more_can_go() {
    let node = Node::start(json!({ "failure-policy": "Fail", "required": true })).await;
    fs::remove_file(node.file()).unwrap();
    node.is_ready(503, &["test.json"]).await;
    write_file(&node.bench, &json!({ "failure-policy": "Fail", "required": false }));
    node.is_ready(200, &[]).await;
    node.run_hooked_pod().await;
    fs::remove_file(node.file()).unwrap();
    node.lets_pods_run_unhooked().await;
}

#[tokio::test]
async fn a_server_that_a_flag_requires_refuses_pods_before_it_was_ever_seen() {
    let mut node = Node::start_with(None, &["--require-server", "test"]).await;
    node.is_ready(503, &["test.json", "--require-server"]).await;
    node.counts("wharf_proxy_hook_servers_missing 1");
    node.refuses("--require-server").await;
    for method in ["CreateContainer", "StartContainer", "UpdateContainerResources"] {
        let method = format!("/runtime.v1.RuntimeService/{method}");
        let error = node.client.call(&method, b"\x0a\x01x".to_vec()).await.unwrap_err();
        assert!(error.message().contains("--require-server"), "{method}: {error}");
    }
    for method in ["StopContainer", "StopPodSandbox", "RemovePodSandbox"] {
        let method = format!("/runtime.v1.RuntimeService/{method}");
        node.client.call(&method, b"\x0a\x01x".to_vec()).await.unwrap();
    }

    // A file that makes no sense is no file.
    fs::write(node.file(), "{").unwrap();
    node.is_ready(503, &["test.json", "EOF"]).await;
    node.refuses("EOF").await;
    fs::remove_file(node.file()).unwrap();
    node.is_ready(503, &["test.json", "forget"]).await;
    let (done, text) = node.ask("forget", &["test.json"]);
    assert!(done && text.contains("--require-server test"), "{text}");
    node.is_ready(200, &[]).await;
    node.run_pod().await.unwrap();
    assert_eq!(node.status()["state"], json!("forgotten"));

    node = node.restart().await;
    node.refuses("--require-server").await;
    write_file(&node.bench, &json!({}));
    node.is_ready(200, &[]).await;
    node.run_hooked_pod().await;
}

/// Of a file that cannot be believed, only what makes it safer is.
#[tokio::test]
async fn a_refused_file_without_a_last_good_version_refuses_pods_if_it_can_be_told() {
    let fail = r#""failure-policy": "Fail", "runtime-hooks": ["PreRunPodSandbox"]"#;
    for (text, mode, refuses) in [
        (format!(r#"{{"remote-endpoint": "relative.sock", {fail}}}"#), 0o644, true),
        (format!(r#"{{"remote-endpoint": "/hooks.sock", {fail}}}"#), 0o664, true),
        (format!(r#"{{"remote-endpoint": "/hooks.sock", {fail}"#), 0o644, false),
        (r#"{"runtime-hooks": ["PreRunPodSandbox"]}"#.to_owned(), 0o644, false),
        (r#"{"runtime-hooks": ["PreRunPodSandbox"], "required": true}"#.to_owned(), 0o644, true),
    ] {
        let node = Node::start_with(None, &[]).await;
        fs::write(node.file(), &text).unwrap();
        fs::set_permissions(node.file(), Permissions::from_mode(mode)).unwrap();
        let effect = if refuses { "calls are refused" } else { "its server is not asked" };
        node.is_ready(503, &["test.json", effect]).await;
        match refuses {
            true => node.refuses("").await,
            false => node.run_pod().await.unwrap(),
        }
    }
}

#[tokio::test]
async fn commands_need_a_proxy_that_runs() {
    let node = Node::start(json!({})).await;
    let (done, text) = node.ask("status", &[]);
    assert!(done, "{text}");
    for wanted in ["NAME", "test.json", "loaded", "asked", "hooks.sock", "PreRunPodSandbox=Ignore"]
    {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
    let control = node.bench.path("nobody.sock");
    let output = wharf(&["proxy", "status", "--control", control.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--control"), "{said}");
}
