//! Servers that change only what they name, that are told details, and that only rehearse.

use std::sync::Arc;

use prost::Message;
use serde_json::{Value, json};
use wharf_criproxy::HookPoint;
use wharf_proto::{
    cri,
    hooks::{
        ContainerResourceHookResponse, LinuxContainerResources, PodSandboxHookResponse, Removals,
    },
};
use wharf_testkit::hook_server::{Answer, HookScript, HookServer, Subject};

use super::{
    node::{FAIL, Node, Plan},
    samples::{create, env, map, resources, run, update},
};

/// A server for all hooks whose file has these keys besides.
fn server(plan: &Plan, name: &str, keys: &Value, script: HookScript) -> HookServer {
    let socket = plan.socket(name);
    let hooks = HookPoint::ALL.map(HookPoint::name);
    let mut file =
        json!({"remote-endpoint": socket, "failure-policy": FAIL, "runtime-hooks": hooks});
    let object = file.as_object_mut().unwrap();
    object.extend(keys.as_object().unwrap().clone());
    plan.file(name, &file.to_string());
    HookServer::serve(&socket, script)
}

fn answering(answer: ContainerResourceHookResponse) -> HookScript {
    let container = Arc::new(move |hook: &str, _: &_| match hook {
        "PreCreateContainer" | "PreUpdateContainerResources" => answer.clone(),
        _ => ContainerResourceHookResponse::default(),
    });
    HookScript { container, ..HookScript::default() }
}

fn of_resources(resources: LinuxContainerResources) -> ContainerResourceHookResponse {
    ContainerResourceHookResponse { container_resources: Some(resources), ..Default::default() }
}

fn created(node: &Node) -> cri::ContainerConfig {
    node.last::<cri::CreateContainerRequest>("CreateContainer").config.unwrap()
}

/// One sets the cpuset, the other the shares, and neither takes away what the other or the kubelet
/// set.
#[tokio::test]
async fn servers_with_partial_answers_are_combined() {
    let plan = Plan::new();
    let partial = json!({"answers": "partial"});
    let cpus = LinuxContainerResources { cpuset_cpus: "1".into(), ..Default::default() };
    let shares = LinuxContainerResources { cpu_shares: 7, ..Default::default() };
    let _first = server(&plan, "a.json", &partial, answering(of_resources(cpus)));
    let named = ContainerResourceHookResponse {
        container_envs: map(&[("NEW", "1")]),
        removals: Some(Removals { envs: vec!["B".into()], ..Default::default() }),
        ..of_resources(shares)
    };
    let at_update = of_resources(named.container_resources.clone().unwrap());
    let script = HookScript {
        container: Arc::new(move |hook, _| match hook {
            "PreCreateContainer" => named.clone(),
            "PreUpdateContainerResources" => at_update.clone(),
            _ => ContainerResourceHookResponse::default(),
        }),
        ..HookScript::default()
    };
    let _second = server(&plan, "b.json", &partial, script);
    let node = plan.start().await;
    let (pod, container) = node.container().await;
    let mut expected = create(&pod).config.unwrap();
    expected.envs = vec![env("A", "2"), env("NEW", "1")];
    let kept =
        cri::LinuxContainerResources { cpu_shares: 7, cpuset_cpus: "1".into(), ..resources() };
    expected.linux.as_mut().unwrap().resources = Some(kept);
    assert_eq!(created(&node), expected);

    // An update stays what it is, and gets what they name.
    let mut request = update(&container, "memory.high");
    let own = request.linux.as_mut().unwrap();
    own.cpu_shares = 99;
    node.kubelet.update(&request).await.unwrap();
    let own = request.linux.as_mut().unwrap();
    own.cpu_shares = 7;
    assert_eq!(
        node.last::<cri::UpdateContainerResourcesRequest>("UpdateContainerResources"),
        request
    );
}

#[tokio::test]
async fn keys_of_a_pod_are_taken_away_from_its_containers_too() {
    let plan = Plan::new();
    let script = HookScript {
        pod: Arc::new(|_, _| PodSandboxHookResponse {
            removals: Some(Removals {
                labels: vec!["app".into()],
                annotations: vec!["owner".into()],
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..HookScript::default()
    };
    let _server = server(&plan, "a.json", &json!({"answers": "partial"}), script);
    let node = plan.start().await;
    node.container().await;
    let run: cri::RunPodSandboxRequest = node.last("RunPodSandbox");
    let create: cri::CreateContainerRequest = node.last("CreateContainer");
    for config in [run.config.unwrap(), create.sandbox_config.unwrap()] {
        assert_eq!((config.labels, config.annotations), (map(&[]), map(&[])));
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_applied_is_refused_by_name() {
    let plan = Plan::new();
    let wrong = LinuxContainerResources { oom_score_adj: 5000, ..Default::default() };
    let _server =
        server(&plan, "a.json", &json!({"answers": "partial"}), answering(of_resources(wrong)));
    let node = plan.start().await;
    let pod = node.pod().await;
    let error = node.kubelet.create(&create(&pod)).await.unwrap_err();
    assert!(error.message().contains("oom_score_adj: expected"), "{error}");
    assert!(node.received("CreateContainer").is_empty());
}

#[tokio::test]
async fn details_are_for_servers_that_ask_for_them() {
    let plan = Plan::new();
    let told = server(&plan, "a.json", &json!({"details": true}), HookScript::default());
    let other = server(&plan, "b.json", &json!({}), HookScript::default());
    let node = plan.start().await;
    let pod = node.pod().await;
    let mut request = create(&pod);
    let config = request.config.as_mut().unwrap();
    config.image = Some(cri::ImageSpec { image: "nginx:1".into(), ..Default::default() });
    config.command = vec!["nginx".into()];
    config.args = vec!["-g".into(), "daemon off;".into()];
    config.labels = map(&[("io.kubernetes.pod.name", "web-0")]);
    config.mounts = vec![cri::Mount {
        container_path: "/data".into(),
        host_path: "/var/lib/data".into(),
        readonly: true,
        ..Default::default()
    }];
    node.kubelet.create(&request).await.unwrap();
    assert_eq!(node.last_bytes("CreateContainer"), request.encode_to_vec());
    let details = told.calls().pop().unwrap().container().details.clone().unwrap();
    assert_eq!(details.image, "nginx:1");
    assert_eq!((details.command, details.args.len()), (vec!["nginx".to_owned()], 2));
    assert_eq!(details.labels, map(&[("io.kubernetes.pod.name", "web-0")]));
    let mount = &details.mounts[0];
    assert_eq!((&*mount.container_path, &*mount.host_path), ("/data", "/var/lib/data"));
    assert!(mount.readonly);
    assert_eq!(other.calls().pop().unwrap().container().details, None);
}

#[tokio::test]
async fn a_dry_run_is_compared_and_never_applied() {
    let plan = Plan::new();
    let partial = json!({"answers": "partial", "order": 5});
    let shares = |shares| LinuxContainerResources { cpu_shares: shares, ..Default::default() };
    let _applied = server(&plan, "a.json", &partial, answering(of_resources(shares(7))));
    let rehearsing = json!({"answers": "partial", "dry-run": true, "order": 9});
    let answer = ContainerResourceHookResponse {
        container_envs: map(&[("NEW", "1")]),
        ..of_resources(shares(8))
    };
    let rehearsed = server(&plan, "b.json", &rehearsing, answering(answer));
    let node = plan.start().await;
    node.container().await;
    let config = created(&node);
    assert_eq!(config.linux.unwrap().resources.unwrap().cpu_shares, 7);
    assert_eq!(config.envs, [env("B", "1"), env("A", "2")]);
    for (field, compared) in [("resources", "different"), ("envs", "new")] {
        node.fixture
            .counts(&format!(
                "wharf_proxy_hook_dry_run_changes_total{{server=\"b.json\",field=\"{field}\",compared=\"{compared}\"}} 1"
            ))
            .await;
    }
    let asked = rehearsed.calls().pop().unwrap();
    let Subject::Container(asked) = asked.about else { panic!("{asked:?}") };
    assert_eq!(asked.container_resources.unwrap().cpu_shares, 7, "at its place in the order");
}

#[tokio::test]
async fn a_dry_run_fails_no_call_and_holds_none_up() {
    for answer in [Answer::Never, Answer::Error(tonic::Status::internal("broken"))] {
        let plan = Plan::new();
        let script = HookScript { answer, ..HookScript::default() };
        let rehearsed = server(&plan, "a.json", &json!({"dry-run": true}), script);
        let node = plan.start().await;
        node.kubelet.run(&run()).await.unwrap();
        rehearsed.seen(|calls| !calls.is_empty()).await;
        let (_, container) = node.container().await;
        node.kubelet.start(&container).await.unwrap();
        node.kubelet.stop(&container).await.unwrap();
        let failed = "wharf_proxy_hook_failures_total{server=\"a.json\",hook=\"PreRunPodSandbox\",policy=\"dry-run\"} ";
        let counted = async {
            while !node.fixture.metrics().contains(failed) {
                tokio::task::yield_now().await;
            }
        };
        crate::fixture::soon(counted).await;
    }
}
