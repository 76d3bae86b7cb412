//! The proxy under koord-runtime-proxy's name, and errors in flags and files under both names.

use std::{
    collections::BTreeSet,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use prost_reflect::prost::Message;
use serde_json::json;
use wharf_proto::cri::{PodSandboxConfig, PodSandboxMetadata, RunPodSandboxRequest};
use wharf_testkit::{
    client::Client,
    hook_server::{HookScript, HookServer},
    koord,
    process::Process,
};

use crate::{
    proxy::{address, hook_folder, recording, register},
    support::{Bench, PATIENCE, WHARF, exists, get, ok, wharf},
};

/// The binary under the other name.
fn koord_runtime_proxy(bench: &Bench) -> PathBuf {
    let link = bench.path("koord-runtime-proxy");
    symlink(WHARF, &link).unwrap();
    link
}

#[test]
fn it_has_the_flags_and_defaults_of_the_peer() {
    let bench = Bench::new();
    let output = Command::new(koord_runtime_proxy(&bench)).arg("--help").output().unwrap();
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    // However its lines are broken.
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (flag, default) in [
        ("koord-runtimeproxy-endpoint", "/var/run/koord-runtimeproxy/runtimeproxy.sock"),
        ("remote-runtime-service-endpoint", "/var/run/containerd/containerd.sock"),
        ("backend-runtime-mode", "Containerd"),
        ("runtime-hook-server-key", "runtimeproxy.koordinator.sh/skip-hookserver"),
        ("runtime-hook-server-val", "true"),
    ] {
        let (_, stated) = help.split_once(&format!("--{flag} string ")).unwrap();
        let stated = stated.split(" -").next().unwrap();
        assert!(stated.ends_with(&format!("(default {default})")), "{flag}: {stated}");
    }
    assert!(help.contains("--remote-image-service-endpoint"), "{help}");
}

/// Names of the flags that a help text lists.
fn flags(help: &[u8]) -> BTreeSet<String> {
    let help = str::from_utf8(help).unwrap();
    let lines = help.lines().map(|line| line.trim().split([' ', ',', '=']));
    let names = lines.flat_map(|words| {
        words.filter(|word| !word.is_empty()).map_while(|word| word.strip_prefix('-'))
    });
    names.map(|name| name.trim_start_matches('-').to_owned()).collect()
}

#[test]
fn it_has_every_flag_of_our_own() {
    let bench = Bench::new();
    let koord = Command::new(koord_runtime_proxy(&bench)).arg("--help").output().unwrap();
    let (koord, own) = (flags(&koord.stdout), flags(&wharf(&["proxy", "-h"]).stdout));
    assert!(own.contains("hook-budget") && own.contains("require-server"), "{own:?}");
    let is_missing = |flag: &&String| !["h", "help"].contains(&flag.as_str());
    let missing: Vec<_> = own.difference(&koord).filter(is_missing).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn flags_and_commands_of_our_own_work_under_its_name() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::default());
    register(&bench, &hooks, &["PreRunPodSandbox"]);
    let (binary, socket) = (koord_runtime_proxy(&bench), bench.path("proxy.sock"));
    let mut command = Command::new(&binary);
    for (flag, path) in [
        ("--listen", &socket),
        ("--runtime", &runtime.path().to_owned()),
        ("--hooks-dir", &hook_folder(&bench)),
        ("--state-dir", &bench.path("state")),
    ] {
        command.arg(flag).arg(path);
    }
    command.args(["--require-server=test", "--require-server=other", "--hook-budget=500ms"]);
    command.args(["--on-conflict=last", "--zero-oom-score-adj", "--busy-poll=0s", "--drain=1s"]);
    command.args(["--skip=alone=please", "--skip-namespace=a,b", "--skip-annotations"]);
    command.arg("--http-endpoint=127.0.0.1:0");
    let mut proxy = Process::start("koord", &command, bench.folder.path()).unwrap();
    let ready = format!("http://{}/readyz", address(&mut proxy).await);
    let client = Client::dial(&socket).await;
    let method = "/runtime.v1.RuntimeService/RunPodSandbox";
    let error = client.call(method, run("name", "value")).await.unwrap_err();
    assert!(error.message().contains("other.json"), "{error}");
    assert!(get(&ready).1.contains("other.json"), "{:?}", get(&ready));

    let ask = |words: &[&str]| {
        let control = bench.path("state/control.sock");
        let output = Command::new(&binary).args(words).arg("--control").arg(control).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(ask(&["status"]).contains("other.json"));
    ask(&["forget", "other"]);
    client.call(method, run("name", "value")).await.unwrap();
    assert_eq!(hooks.calls().len(), 1);
    let explained = ask(&["explain", "name"]);
    let missing = ", refused; RunPodSandbox ended with Unavailable after ";
    for expected in
        [missing, "other.json: missing, policy Fail\n    error: ", "test.json: ok after "]
    {
        assert!(explained.contains(expected), "no {expected:?} in {explained}");
    }
    assert!(ask(&["tap", "--for", "1ms"]).starts_with("TIME "));
    proxy.ready(PATIENCE, "readyz", || ok(ready.clone())).await.unwrap();
    assert!(proxy.stop(PATIENCE).await.unwrap().success());

    for (flag, wanted) in [
        ("--on-conflict=fight", "refuse, first or last"),
        ("--hook-budget=0s", "every hook would fail"),
        ("--busy-poll=1s", "--busy-poll"),
        ("--skip=alone", "expected KEY=VALUE"),
        ("--control=here.sock", "--control"),
    ] {
        assert_said(&Command::new(&binary).arg(flag).output().unwrap(), 2, wanted);
    }
}

#[test]
fn modes_that_are_not_served_are_told_from_nonsense() {
    let bench = Bench::new();
    let binary = koord_runtime_proxy(&bench);
    for (flag, wanted) in [
        ("--backend-runtime-mode=Docker", "cri-dockerd"),
        ("--backend-runtime-mode=containerd", "expected Containerd"),
        (
            "--remote-runtime-service-endpoint=tcp://127.0.0.1:1",
            "--remote-runtime-service-endpoint",
        ),
        ("--koord-runtimeproxy-endpoint=here.sock", "--koord-runtimeproxy-endpoint"),
        ("--no-such-flag", "no-such-flag"),
    ] {
        let output = Command::new(&binary).arg(flag).output().unwrap();
        assert_said(&output, 2, wanted);
    }
}

#[tokio::test]
async fn it_serves_where_the_peer_would() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::default());
    register(&bench, &hooks, &["PreRunPodSandbox"]);
    let (binary, folder) = (koord_runtime_proxy(&bench), bench.folder.path());
    let unshared = koord::unshared(folder, &hook_folder(&bench), &binary).unwrap();
    let Some(mut command) = unshared else { return };
    let socket = bench.path("run/proxy.sock");
    command.arg(format!("--koord-runtimeproxy-endpoint={}", socket.display()));
    command.arg(format!("--remote-runtime-service-endpoint={}", runtime.path().display()));
    command.arg("--remote-image-service-endpoint=/run/images.sock");
    command.arg(format!("--state-dir={}", bench.path("state").display()));
    command.arg(format!("--control={}", bench.path("control.sock").display()));
    command.args(["--runtime-hook-server-key=alone", "--runtime-hook-server-val=please"]);
    let mut proxy = Process::start("koord", &command, folder).unwrap();
    proxy.ready(PATIENCE, "its socket", || exists(&socket)).await.unwrap();
    let ignored = |line: &str| {
        (line.contains("ignored") && line.contains("remote-image-service-endpoint")).then_some(())
    };
    proxy.line(PATIENCE, "the warning", ignored).await.unwrap();

    let client = Client::dial(&socket).await;
    for (name, value) in [("alone", "please"), ("other", "true")] {
        for version in ["v1", "v1alpha2"] {
            let method = format!("/runtime.{version}.RuntimeService/RunPodSandbox");
            client.call(&method, run(name, value)).await.unwrap();
        }
    }
    assert_eq!(runtime.calls().len(), 4);
    let asked: Vec<_> = hooks.calls().iter().map(|call| call.pod().labels.clone()).collect();
    let other = [("other".to_owned(), "true".to_owned())];
    assert_eq!(asked, [other.clone().into(), other.into()]);

    assert!(proxy.stop(PATIENCE).await.unwrap().success());
    assert!(!socket.exists());
}

/// A pod with a label.
fn run(name: &str, value: &str) -> Vec<u8> {
    let metadata = PodSandboxMetadata { name: name.to_owned(), ..Default::default() };
    let config = PodSandboxConfig {
        metadata: Some(metadata),
        labels: [(name.to_owned(), value.to_owned())].into(),
        ..Default::default()
    };
    RunPodSandboxRequest { config: Some(config), ..Default::default() }.encode_to_vec()
}

#[test]
fn bad_flags_of_our_own_are_named() {
    let given = ["--listen", "/a.sock", "--runtime", "/r.sock"];
    let cases: &[(&[&str], &str)] = &[
        (&[], "--listen <SOCKET>"),
        (&given[..2], "--runtime <SOCKET>"),
        (&[&given[..], &["--hook-budget=-1s"]].concat(), "must not be negative"),
        (&[&given[..], &["--hook-budget=soon"]].concat(), "--hook-budget"),
        (&[&given[..], &["--hook-budget=0s"]].concat(), "every hook would fail"),
        (&[&given[..], &["--drain=-1s"]].concat(), "--drain"),
        (&[&given[..], &["--on-conflict=fight"]].concat(), "refuse, first, last"),
        (&[&given[..], &["--skip=alone"]].concat(), "expected KEY=VALUE"),
        (&[&given[..], &["--backend-runtime-mode=Docker"]].concat(), "--backend-runtime-mode"),
        (&[&given[..], &["check-config"]].concat(), "check-config"),
    ];
    for (args, wanted) in cases {
        assert_said(&wharf(&[&["proxy"], *args].concat()), 2, wanted);
    }
}

#[test]
fn a_folder_that_cannot_be_followed_is_no_start() {
    let bench = Bench::new();
    let (file, open) = (bench.path("file"), bench.path("open"));
    std::fs::write(&file, "").unwrap();
    open_folder(&open);
    for (folder, wanted) in [(file, "file"), (open, "chmod go-w")] {
        let socket = bench.path("proxy.sock");
        let args = ["proxy", "--listen", socket.to_str().unwrap(), "--runtime", "/r.sock"];
        let (hooks, state) = (folder.to_str().unwrap(), bench.path("state"));
        let more = ["--hooks-dir", hooks, "--state-dir", state.to_str().unwrap()];
        let output = wharf(&[&args[..], &more].concat());
        assert_said(&output, 1, wanted);
        assert!(!socket.exists());
    }
}

#[test]
fn files_are_checked_before_they_matter() {
    let bench = Bench::new();
    let folder = bench.path("hookserver.d");
    let check = || wharf(&["proxy", "check-config", "--hooks-dir", folder.to_str().unwrap()]);
    assert_printed(&check(), 0, &["warning:", "no such folder"]);

    std::fs::create_dir(&folder).unwrap();
    assert_printed(&check(), 0, &["no hook servers in"]);
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    let entry = |more: serde_json::Value| {
        let mut entry =
            json!({ "remote-endpoint": "/run/a.sock", "runtime-hooks": ["PreCreateContainer"] });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry.to_string()
    };
    write("b.json", &entry(json!({ "order": -1, "failure-policy": "Fail" })));
    write("a.json", &entry(json!({ "timeout": "300ms", "remote-endpoint": "/run/b.sock" })));
    let output = check();
    assert_printed(
        &output,
        0,
        &[
            "1. b.json at /run/a.sock (order -1): PreCreateContainer=Fail",
            "2. a.json at /run/b.sock (order 0, timeout 300ms): PreCreateContainer=Ignore",
        ],
    );
    assert!(!String::from_utf8_lossy(&output.stdout).contains("warning"), "{output:?}");

    write("c.json", &entry(json!({ "selector": {}, "runtime-hooks": ["PreDream"] })));
    write("notes.txt", "");
    assert_printed(
        &check(),
        0,
        &["c.json: \"selector\"", "\"PreDream\" is not a hook", "notes.txt: left alone"],
    );

    write("d.json", &entry(json!({ "failure-policy": "Maybe" })));
    write("e.json", "{");
    write("f.json", "{}");
    let output = check();
    assert_printed(
        &output,
        1,
        &["d.json: failure-policy: expected", "e.json: EOF", "f.json: remote-endpoint is missing"],
    );
    // Good ones are told all the same.
    assert_printed(&output, 1, &["1. b.json", "2. a.json"]);

    open_folder(&folder);
    assert_printed(&check(), 1, &["error:", "chmod go-w"]);
}

/// A folder that everybody may write to.
fn open_folder(path: &Path) {
    std::fs::create_dir_all(path).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
}

fn assert_said(output: &Output, code: i32, wanted: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(wanted), "no {wanted:?} in {said}");
}

fn assert_printed(output: &Output, code: i32, wanted: &[&str]) {
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{printed}");
    for wanted in wanted {
        assert!(printed.contains(wanted), "no {wanted:?} in {printed}");
    }
}
