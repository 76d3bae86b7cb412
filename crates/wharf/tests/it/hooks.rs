//! `wharf hooks static` and `wharf hooks log`, called as by a proxy.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tonic::Request;
use wharf_proto::hooks::{
    ContainerMetadata, ContainerResourceHookRequest, ContainerResourceHookResponse,
    LinuxContainerResources, PodSandboxHookRequest, PodSandboxMetadata,
    runtime_hook_service_client::RuntimeHookServiceClient,
};
use wharf_testkit::process::Process;
use wharf_uds::{Channel, ChannelOptions};

use crate::support::{Bench, PATIENCE, exists, get, wharf};

type Proxy = RuntimeHookServiceClient<Channel>;

/// A hook server of the bench's folder, once it is registered.
async fn start(bench: &Bench, kind: &str, more: &[&str]) -> (Process, Proxy) {
    let (socket, folder) = (bench.path("run/hooks.sock"), bench.path("hookserver.d"));
    let flags = ["--socket", socket.to_str().unwrap(), "--config-dir", folder.to_str().unwrap()];
    let mut server = bench.start(kind, &[&["hooks", kind], &flags[..], more].concat());
    let file = file(bench, kind);
    server.ready(PATIENCE, "the server's file", || exists(&file)).await.unwrap();
    let channel = Channel::new(&socket, ChannelOptions::default());
    (server, RuntimeHookServiceClient::new(channel))
}

fn file(bench: &Bench, kind: &str) -> PathBuf {
    bench.path(&format!("hookserver.d/wharf-{kind}.json"))
}

fn config(bench: &Bench, kind: &str) -> Value {
    serde_json::from_slice(&fs::read(file(bench, kind)).unwrap()).unwrap()
}

fn pod() -> PodSandboxMetadata {
    PodSandboxMetadata { name: "p".into(), uid: "u".into(), namespace: "n".into(), attempt: 0 }
}

fn container() -> ContainerResourceHookRequest {
    ContainerResourceHookRequest {
        pod_meta: Some(pod()),
        container_meta: Some(ContainerMetadata { name: "c".into(), attempt: 0, id: "".into() }),
        container_resources: Some(LinuxContainerResources {
            oom_score_adj: 1000,
            cpuset_mems: "0".into(),
            ..LinuxContainerResources::default()
        }),
        container_annotations: [("note".to_owned(), "private".to_owned())].into(),
        pod_cgroup_parent: "/kubepods/besteffort/podu".into(),
        container_envs: [("TOKEN".to_owned(), "hunter2".to_owned())].into(),
        ..ContainerResourceHookRequest::default()
    }
}

async fn created(proxy: &mut Proxy) -> ContainerResourceHookResponse {
    proxy.pre_create_container_hook(container()).await.unwrap().into_inner()
}

#[tokio::test]
async fn rules_apply_and_follow_their_file() {
    let bench = Bench::new();
    let rules = bench.path("rules.yaml");
    fs::write(&rules, "rules: [{ name: a, match: { qos: [BestEffort] }, set: { cpuset: '1' } }]")
        .unwrap();
    let more = ["--rules", rules.to_str().unwrap(), "--order=-5", "--failure-policy", "Fail"];
    let more = [&more[..], &["--timeout", "300ms", "--http-endpoint", "127.0.0.1:0"]].concat();
    let (mut server, mut proxy) = start(&bench, "static", &more).await;
    let wanted = json!({
        "remote-endpoint": bench.path("run/hooks.sock"),
        "failure-policy": "Fail",
        "runtime-hooks": ["PreCreateContainer", "PreUpdateContainerResources"],
        "order": -5,
        "timeout": "300ms",
        "answers": "partial",
    });
    assert_eq!(config(&bench, "static"), wanted);
    let answer = created(&mut proxy).await;
    let resources = answer.container_resources.clone().unwrap();
    assert_eq!((resources.cpuset_cpus.as_str(), resources.cpuset_mems.as_str()), ("1", "0"));
    assert_eq!(resources.oom_score_adj, 1000);
    assert!(answer.container_envs.is_empty());
    let update = proxy.pre_update_container_resources_hook(container()).await.unwrap();
    assert_eq!(update.into_inner(), answer);

    // A mistake changes nothing.
    fs::write(&rules, "rules: [{ name: broken, set: { cpuset: 9-1 } }]").unwrap();
    let refused = |line: &str| {
        (line.contains("keeping the last good ones") && line.contains("set.cpuset")).then_some(())
    };
    server.line(PATIENCE, "the refusal", refused).await.unwrap();
    assert_eq!(created(&mut proxy).await, answer);

    // A better version is in force, and the proxy asks where it has to.
    let next = bench.path("next.yaml");
    fs::write(&next, "rules: [{ name: b, set: { env: { A: b }, podLabels: { l: v } } }]").unwrap();
    fs::rename(&next, &rules).unwrap();
    server
        .ready(PATIENCE, "the new hooks", || async {
            let hooks = json!(["PreRunPodSandbox", "PreCreateContainer"]);
            (config(&bench, "static")["runtime-hooks"] == hooks).then_some(())
        })
        .await
        .unwrap();
    let answer = created(&mut proxy).await;
    let env = [("A", "b"), ("TOKEN", "hunter2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!((answer.container_envs, answer.container_resources), (env.into(), None));
    let sandbox = PodSandboxHookRequest { pod_meta: Some(pod()), ..Default::default() };
    let answer = proxy.pre_run_pod_sandbox_hook(sandbox).await.unwrap().into_inner();
    assert_eq!(answer.labels, [("l".to_owned(), "v".to_owned())].into());

    let address = server.line(PATIENCE, "admin address", |line| {
        let (_, rest) = line.split_once("address=\"")?;
        Some(rest.split('"').next()?.to_owned())
    });
    let (_, metrics) = get(&format!("http://{}/metrics", address.await.unwrap()));
    let line =
        "wharf_hook_server_seconds_count{hook=\"PreCreateContainer\",grpc_status_code=\"OK\"} 3";
    assert!(metrics.contains(line), "{metrics}");

    assert!(server.stop(PATIENCE).await.unwrap().success());
    assert!(!file(&bench, "static").exists() && !bench.path("run/hooks.sock").exists());
}

#[test]
fn rules_are_checked_without_serving() {
    let bench = Bench::new();
    let rules = bench.path("rules.yaml");
    let check = || wharf(&["hooks", "static", "--check", "--rules", rules.to_str().unwrap()]);
    fs::write(&rules, "rules: [{ name: a, set: { cgroupParent: /a } }]").unwrap();
    let output = check();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(
        text.ends_with("rules.yaml: 1 rules for PreRunPodSandbox, PreCreateContainer\n"),
        "{text}"
    );

    fs::write(&rules, "rules:\n  - name: a\n    set: { cpusett: '0' }\n").unwrap();
    let output = check();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(
        text.contains("rules.yaml") && text.contains("cpusett") && text.contains('3'),
        "{text}"
    );

    let output = wharf(&["hooks", "static", "--rules", rules.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("--socket"), "{text}");
}

/// Who writes the rules decides about every container.
#[test]
fn rules_that_others_may_write_are_refused() {
    let bench = Bench::new();
    let folder = bench.path("rules.d");
    let rules = folder.join("rules.yaml");
    fs::create_dir(&folder).unwrap();
    fs::write(&rules, "rules: [{ name: a, set: { cgroupParent: /a } }]").unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let check = || {
        let output = wharf(&["hooks", "static", "--check", "--rules", rules.to_str().unwrap()]);
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    mode(&folder, 0o755);
    for (file, why) in [(&rules, "its mode 0666"), (&folder, "rules.d: its mode 0777")] {
        mode(file, if file == &rules { 0o666 } else { 0o777 });
        let (ok, text) = check();
        assert!(!ok && text.contains(why) && text.contains("chmod go-w"), "{text}");
        mode(file, if file == &rules { 0o644 } else { 0o755 });
        assert_eq!(check(), (true, String::new()));
    }
}

#[tokio::test]
async fn the_log_shows_everything_but_secrets() {
    for output in ["text", "json"] {
        let bench = Bench::new();
        let (mut server, mut proxy) = start(&bench, "log", &["--output", output]).await;
        assert_eq!(config(&bench, "log")["runtime-hooks"].as_array().unwrap().len(), 7);
        assert_eq!(created(&mut proxy).await, ContainerResourceHookResponse::default());
        // Any other answer to this one would make the update a full one.
        let update = proxy.pre_update_container_resources_hook(container()).await.unwrap();
        assert_eq!(update.into_inner(), ContainerResourceHookResponse::default());
        let mut stopped = Request::new(container());
        for (key, value) in [
            ("wharf-outcome-code", "5"),
            ("wharf-outcome-message", "no%20such%0Acontainer"),
            ("wharf-outcome-duration-ms", "3"),
        ] {
            stopped.metadata_mut().insert(key, value.parse().unwrap());
        }
        proxy.post_stop_container_hook(stopped).await.unwrap();

        let wanted: [&[&str]; 2] = match output {
            "text" => [
                &[
                    " PreCreateContainer n/p c qos=BestEffort ",
                    "annotations=[note]",
                    "env=[TOKEN:7]",
                ],
                &[" PostStopContainer n/p c ", "outcome=NotFound after=3ms", r"such\ncontainer"],
            ],
            _ => [
                &[
                    r#""hook":"PreCreateContainer""#,
                    r#""qos":"BestEffort""#,
                    r#""envLengths":{"TOKEN":7}"#,
                ],
                &[r#""hook":"PostStopContainer""#, r#""code":"NotFound""#, r#""oomScoreAdj":1000"#],
            ],
        };
        for words in wanted {
            let all = |line: &str| words.iter().all(|word| line.contains(word)).then_some(());
            server.line(PATIENCE, words[0], all).await.unwrap();
        }
        let log = server.log().to_owned();
        assert!(server.stop(PATIENCE).await.unwrap().success());
        let text = fs::read_to_string(log).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("private"), "{text}");
        assert!(!file(&bench, "log").exists());
    }
}
