use proptest::prelude::*;
use wharf_cri::ClientOptions;
use wharf_testkit::runtime::{Received, Reply, Runtime, Then, message};

use super::*;
use crate::container::creation;

const POD_INFO: &str = r#"{"config": {"linux": {"cgroup_parent": "/pods"}}}"#;
const CONTAINER_INFO: &str = r#"{
    "config": {
        "envs": [{"key": "A", "value": "a!"}],
        "linux": {"resources": {"cpu_shares": 512, "memory_limit_in_bytes": 64, "oom_score_adj": 3}}
    },
    "runtimeSpec": {"linux": {"cgroupsPath": "/elsewhere/id-1"}}
}"#;

fn text(pairs: &[(&str, &str)]) -> map::Map {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn listed_pod(id: &str) -> cri::PodSandbox {
    cri::PodSandbox {
        id: id.to_owned(),
        metadata: Some(cri::PodSandboxMetadata {
            name: "p".into(),
            uid: "u".into(),
            namespace: "n".into(),
            attempt: 1,
        }),
        labels: text(&[("l", "1")]),
        annotations: text(&[("a", "2")]),
        runtime_handler: "kata".into(),
        ..Default::default()
    }
}

fn listed_container(pod: &str, id: &str, state: cri::ContainerState) -> cri::Container {
    cri::Container {
        id: id.to_owned(),
        pod_sandbox_id: pod.to_owned(),
        metadata: Some(cri::ContainerMetadata { name: "c".into(), attempt: 2 }),
        annotations: text(&[("c", "3")]),
        state: state.into(),
        ..Default::default()
    }
}

/// A runtime with these pods and containers, and one status for all of either.
struct Listed {
    pods: Vec<cri::PodSandbox>,
    containers: Vec<cri::Container>,
    verbose: bool,
}

impl Listed {
    fn two() -> Self {
        let running = cri::ContainerState::ContainerRunning;
        let exited = cri::ContainerState::ContainerExited;
        Self {
            pods: vec![listed_pod("pod-1")],
            containers: vec![
                listed_container("pod-1", "id-1", running),
                listed_container("pod-1", "id-2", exited),
                listed_container("pod that is gone", "id-3", running),
            ],
            verbose: true,
        }
    }

    fn start(self, folder: &tempfile::TempDir) -> (Runtime, Client) {
        let runtime = Runtime::start(&folder.path().join("runtime.sock"));
        let client = Client::new(runtime.path(), ClientOptions::default());
        runtime.tell(move |method| Reply::of(vec![message(&self.answer(method))]));
        (runtime, client)
    }

    fn answer(&self, method: &str) -> Vec<u8> {
        let info = |document: &str| {
            if self.verbose { text(&[("info", document)]) } else { map::Map::new() }
        };
        match method.rsplit('/').next() {
            Some("ListPodSandbox") => {
                cri::ListPodSandboxResponse { items: self.pods.clone() }.encode_to_vec()
            }
            Some("ListContainers") => {
                cri::ListContainersResponse { containers: self.containers.clone() }.encode_to_vec()
            }
            Some("PodSandboxStatus") => {
                let own = listed_pod("pod-1");
                let status = cri::PodSandboxStatus {
                    id: own.id,
                    metadata: own.metadata,
                    labels: own.labels,
                    annotations: own.annotations,
                    runtime_handler: own.runtime_handler,
                    ..Default::default()
                };
                let (status, info) = (Some(status), info(POD_INFO));
                cri::PodSandboxStatusResponse { status, info, ..Default::default() }.encode_to_vec()
            }
            Some("ContainerStatus") => {
                let linux = cri::LinuxContainerResources {
                    cpu_shares: 512,
                    cpuset_cpus: "0-1".into(),
                    memory_limit_in_bytes: 64,
                    memory_swap_limit_in_bytes: 64,
                    ..Default::default()
                };
                let resources = cri::ContainerResources { linux: Some(linux), windows: None };
                let status = cri::ContainerStatus {
                    id: "id-1".into(),
                    resources: self.verbose.then_some(resources),
                    ..Default::default()
                };
                let (status, info) = (Some(status), info(CONTAINER_INFO));
                cri::ContainerStatusResponse { status, info }.encode_to_vec()
            }
            _ => Vec::new(),
        }
    }
}

/// What hooks are told of a container, both halves of it.
fn whole(container: &Container, pod: &Pod) -> ContainerResourceHookRequest {
    let bytes = [&**pod.encoded_pod(), &container.question().encode_to_vec()].concat();
    ContainerResourceHookRequest::decode(&*bytes).unwrap()
}

fn whole_container() -> ContainerResourceHookRequest {
    ContainerResourceHookRequest {
        pod_meta: whole_pod().pod_meta,
        container_meta: Some(ContainerMetadata { name: "c".into(), attempt: 2, id: "id-1".into() }),
        container_annotations: text(&[("c", "3")]),
        container_resources: Some(Resources {
            cpu_shares: 512,
            memory_limit_in_bytes: 64,
            oom_score_adj: 3,
            cpuset_cpus: "0-1".into(),
            ..Default::default()
        }),
        pod_annotations: text(&[("a", "2")]),
        pod_labels: text(&[("l", "1")]),
        pod_cgroup_parent: "/elsewhere".into(),
        container_envs: text(&[("A", "a!")]),
        ..Default::default()
    }
}

fn whole_pod() -> PodSandboxHookRequest {
    PodSandboxHookRequest {
        pod_meta: Some(PodSandboxMetadata {
            name: "p".into(),
            uid: "u".into(),
            namespace: "n".into(),
            attempt: 0,
        }),
        runtime_handler: "kata".into(),
        labels: text(&[("l", "1")]),
        annotations: text(&[("a", "2")]),
        cgroup_parent: "/pods".into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn all_that_the_runtime_tells_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let (_runtime, client) = Listed::two().start(&folder);
    let records = Records::default();
    let rebuilt = all(&client, &records).await.unwrap();
    assert_eq!(rebuilt, Rebuilt { pods: 1, containers: 2, bare: 0 });
    let pod = records.pod("pod-1").unwrap();
    assert_eq!(pod.question(), whole_pod());
    assert!(!pod.is_stopped());
    let running = records.container("id-1").unwrap();
    assert_eq!(whole(&running, &pod), whole_container());
    assert!(!running.is_stopped());
    assert!(records.container("id-2").unwrap().is_stopped(), "its hook is not repeated");
    assert!(records.container("id-3").is_none());
    // What was carried is found again, in a request that knows nothing of it.
    let create = cri::CreateContainerRequest::default().encode_to_vec().into();
    assert_eq!(creation(&create, &pod, true).unwrap().question.pod_cgroup_parent, "/pods");
}

#[tokio::test]
async fn a_status_that_does_not_come_is_asked_for_later() {
    let folder = tempfile::tempdir().unwrap();
    let listed =
        Arc::new(Listed { containers: Listed::two().containers.split_off(1), ..Listed::two() });
    let runtime = Runtime::start(&folder.path().join("runtime.sock"));
    let client = Client::new(runtime.path(), ClientOptions::default());
    let failing = listed.clone();
    let error = ("grpc-status".to_owned(), b"13".to_vec());
    runtime.tell(move |method| match method.ends_with("/ContainerStatus") {
        true => Reply { headers: vec![error.clone()], ..Reply::then(Vec::new(), Then::Headers) },
        false => Reply::of(vec![message(&failing.answer(method))]),
    });
    let records = Records::default();
    let rebuilt = all(&client, &records).await.unwrap();
    assert_eq!(rebuilt, Rebuilt { pods: 1, containers: 0, bare: 0 });
    assert!(container(&client, &records, "id-2").await.is_err());
    runtime.tell(move |method| Reply::of(vec![message(&listed.answer(method))]));
    let found = container(&client, &records, "id-2").await.unwrap().unwrap();
    assert_eq!(found.record.question().container_envs, whole_container().container_envs);
}

#[tokio::test]
async fn no_id_is_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let listed = Listed { containers: Listed::two().containers.split_off(1), ..Listed::two() };
    let (_runtime, client) = listed.start(&folder);
    let records = Records::default();
    assert!(container(&client, &records, "").await.unwrap().is_none());
    assert!(pod(&client, &records, "").await.unwrap().is_none());
}

#[tokio::test]
async fn a_runtime_that_tells_little_leaves_what_lists_have() {
    let folder = tempfile::tempdir().unwrap();
    let (_runtime, client) = Listed { verbose: false, ..Listed::two() }.start(&folder);
    let records = Records::default();
    let rebuilt = all(&client, &records).await.unwrap();
    assert_eq!(rebuilt, Rebuilt { pods: 1, containers: 2, bare: 3 });
    let pod = records.pod("pod-1").unwrap();
    let expected = PodSandboxHookRequest { cgroup_parent: String::new(), ..whole_pod() };
    assert_eq!(pod.question(), expected);
    let expected = ContainerResourceHookRequest {
        container_resources: None,
        container_envs: text(&[]),
        pod_cgroup_parent: String::new(),
        ..whole_container()
    };
    assert_eq!(whole(&records.container("id-1").unwrap(), &pod), expected);
}

#[tokio::test]
async fn one_that_is_not_known_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let listed = Listed { containers: Listed::two().containers.split_off(1), ..Listed::two() };
    let (runtime, client) = listed.start(&folder);
    let records = Records::default();
    assert!(container(&client, &records, "no-such-container").await.unwrap().is_none());
    let found = container(&client, &records, "id-2").await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.record.pod()), ("id-2", "pod-1"));
    let known = pod(&client, &records, "pod-1").await.unwrap().unwrap();
    assert_eq!(known.record.question(), whole_pod());
    let calls = runtime.inquiries().len();
    assert!(container(&client, &records, "id-2").await.unwrap().is_some());
    assert!(pod(&client, &records, "pod-1").await.unwrap().is_some());
    assert_eq!(runtime.inquiries().len(), calls, "what is known is not asked for");

    let missing = ("grpc-status".to_owned(), b"5".to_vec());
    runtime.tell(move |_| Reply {
        headers: vec![missing.clone()],
        ..Reply::then(Vec::new(), Then::Headers)
    });
    assert!(pod(&client, &records, "pod-2").await.unwrap().is_none());
}

#[tokio::test]
async fn a_beginning_of_an_id_finds_the_record_that_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let listed = Listed { containers: Listed::two().containers.split_off(1), ..Listed::two() };
    let (_runtime, client) = listed.start(&folder);
    let records = Records::default();
    all(&client, &records).await.unwrap();
    records.commit_pod("pod-1", records.pod("pod-1").unwrap().stopped());
    let found = pod(&client, &records, "pod").await.unwrap().unwrap();
    assert_eq!(found.id, "pod-1");
    assert!(found.record.is_stopped());
    let found = container(&client, &records, "id-2").await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&found.record, &records.container("id-2").unwrap()));
}

#[tokio::test]
async fn a_full_node_is_asked_a_few_questions_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..100).map(|number| format!("id-{number}")).collect();
    let running = cri::ContainerState::ContainerRunning;
    let listed = Listed {
        containers: ids.iter().map(|id| listed_container("pod-1", id, running)).collect(),
        ..Listed::two()
    };
    let runtime = Runtime::start(&folder.path().join("runtime.sock"));
    let client = Client::new(runtime.path(), ClientOptions::default());
    let full = Arc::new(listed);
    let silent = full.clone();
    runtime.tell(move |method| match method.ends_with("/ContainerStatus") {
        true => Reply::then(Vec::new(), Then::Never),
        false => Reply::of(vec![message(&silent.answer(method))]),
    });
    let records = Records::default();
    let rebuilding = || {
        let (cri, records) = (client.clone(), records.clone());
        async move { all(&cri, &records).await.unwrap() }
    };
    let asked = |calls: &Vec<Received>| {
        calls.iter().filter(|call| call.method.ends_with("/ContainerStatus")).count()
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(rebuilding());
    runtime.inquired(|calls| asked(calls) == CONCURRENCY).await;
    // Whatever was sent before this answer has arrived.
    client.pods().await.unwrap();
    assert_eq!(asked(&runtime.inquiries()), CONCURRENCY);
    tasks.shutdown().await;

    runtime.tell(move |method| Reply::of(vec![message(&full.answer(method))]));
    assert_eq!(rebuilding().await, Rebuilt { pods: 1, containers: 100, bare: 0 });
    assert_eq!(records.containers_of("pod-1").len(), 100);
}

#[test]
fn a_parent_is_read_off_the_containers_cgroup() {
    for (path, pod_parent, expected) in [
        ("/pods/id-1", "/pods", None),
        ("/pods/id-1", "/pods/", None),
        ("/elsewhere/id-1", "/pods", Some("/elsewhere")),
        ("/k8s.io/id-1", "", None),
        ("/asked/id-1", "", Some("/asked")),
        ("pod.slice:cri-containerd:id-1", "/kube.slice/pod.slice", None),
        ("other.slice:cri-containerd:id-1", "/kube.slice/pod.slice", Some("other.slice")),
        ("/somebody/elses", "/pods", None),
    ] {
        assert_eq!(parent(path, "id-1", pod_parent).as_deref(), expected, "{path} {pod_parent}");
    }
}

#[test]
fn swap_that_nobody_asked_for_is_not_remembered() {
    let asked = |memory_limit_in_bytes, memory_swap_limit_in_bytes| {
        Some(Resources { memory_limit_in_bytes, memory_swap_limit_in_bytes, ..Default::default() })
    };
    assert_eq!(resources(asked(64, 0), asked(64, 64)), asked(64, 0));
    assert_eq!(resources(asked(64, 64), asked(64, 64)), asked(64, 64));
    assert_eq!(resources(asked(64, 0), asked(64, 128)), asked(64, 128));
    assert_eq!(resources(None, asked(64, 64)), asked(64, 64));
    assert_eq!(resources(asked(64, 0), None), asked(64, 0));
}

proptest! {
    #[test]
    fn both_protocols_have_the_same_resources(own in crate::resources::tests::resources()) {
        let cri = cri::LinuxContainerResources::decode(&*own.encode_to_vec()).unwrap();
        prop_assert_eq!(same(&cri), own);
    }
}

#[tokio::test]
async fn what_the_runtime_no_longer_has_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, client) = Listed::two().start(&folder);
    let records = Records::default();
    all(&client, &records).await.unwrap();
    assert_eq!(records.ids().len(), 3);
    let calls = runtime.inquiries().len();
    all(&client, &records).await.unwrap();
    assert_eq!(runtime.inquiries().len(), calls + 2, "what is known is not asked for again");
    let fewer = Listed { containers: Listed::two().containers.split_off(1), ..Listed::two() };
    runtime.tell(move |method| Reply::of(vec![message(&fewer.answer(method))]));
    all(&client, &records).await.unwrap();
    assert!(records.container("id-1").is_none());
    assert!(records.container("id-2").is_some() && records.pod("pod-1").is_some());
    runtime.tell(|_| Reply::default());
    all(&client, &records).await.unwrap();
    assert!(records.ids().is_empty());
}
