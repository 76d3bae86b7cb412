use wharf_proto::cri::{
    ContainerStatus, ContainerStatusResponse, KeyValue, PodSandboxStatus, PodSandboxStatusResponse,
};

use crate::{ContainerDetails, PodDetails};

/// A shortened document of containerd 1.6 and 1.7.
const TEXT: &str = r#"{
    "sandboxID": "pod-1", "pid": 4711, "removing": false, "runtimeOptions": null,
    "config": {
        "metadata": {"name": "c", "attempt": 3},
        "image": {"image": "busybox"},
        "envs": [{"key": "B", "value": "aGk="}, {"key": "A"}],
        "annotations": {"a": "1"},
        "log_path": "c.log",
        "linux": {
            "resources": {
                "cpu_period": 100000, "cpu_quota": -1, "cpu_shares": 512,
                "memory_limit_in_bytes": 67108864, "oom_score_adj": -997, "cpuset_cpus": "0-1", "cpuset_mems": "0",
                "hugepage_limits": [{"page_size": "2MB", "limit": 4096}, {"page_size": "1GB"}],
                "unified": {"memory.high": "1"}, "memory_swap_limit_in_bytes": 7
            },
            "security_context": {"namespace_options": {"pid": 1}}
        }
    },
    "runtimeSpec": {
        "ociVersion": "1.0.2",
        "process": {"env": ["PATH=/bin", "B=aGk=", "A="], "args": ["sh"]},
        "linux": {"cgroupsPath": "/pods/id-1", "resources": {"cpu": {"shares": 512}}}
    }
}"#;

fn container(info: &str) -> ContainerDetails {
    let status = ContainerStatus { id: "id-1".to_owned(), ..Default::default() };
    let info = [("info".to_owned(), info.to_owned())].into();
    ContainerDetails::read(ContainerStatusResponse { status: Some(status), info }).unwrap()
}

fn pod(info: &str) -> PodDetails {
    let status = Some(PodSandboxStatus { id: "pod-1".to_owned(), ..Default::default() });
    let info = [("info".to_owned(), info.to_owned())].into();
    PodDetails::read(PodSandboxStatusResponse { status, info, ..Default::default() }).unwrap()
}

fn env(key: &str, value: &[u8]) -> KeyValue {
    KeyValue { key: key.to_owned(), value: value.to_owned() }
}

#[test]
fn a_container_is_read_whole() {
    let details = container(TEXT);
    assert_eq!(details.cgroups_path.as_deref(), Some("/pods/id-1"));
    let config = details.config.unwrap();
    assert_eq!(config.annotations["a"], "1");
    assert_eq!(config.envs, Some(vec![env("B", b"aGk="), env("A", b"")]));
    let resources = config.resources.unwrap();
    assert_eq!(
        (resources.cpu_period, resources.cpu_quota, resources.cpu_shares),
        (100_000, -1, 512)
    );
    assert_eq!((resources.memory_limit_in_bytes, resources.oom_score_adj), (67_108_864, -997));
    assert_eq!(resources.memory_swap_limit_in_bytes, 7);
    assert_eq!((resources.cpuset_cpus.as_str(), resources.cpuset_mems.as_str()), ("0-1", "0"));
    assert_eq!(resources.unified["memory.high"], "1");
    let limits: Vec<_> =
        resources.hugepage_limits.iter().map(|own| (own.page_size.as_str(), own.limit)).collect();
    assert_eq!(limits, [("2MB", 4096), ("1GB", 0)]);
}

#[test]
fn values_of_newer_runtimes_are_base64() {
    let newer = TEXT.replace("\"B=aGk=\"", "\"B=hi\"");
    let envs = container(&newer).config.unwrap().envs;
    assert_eq!(envs, Some(vec![env("B", b"hi"), env("A", b"")]));
}

#[test]
fn a_pod_tells_its_cgroup_parent() {
    let linux = r#"{"config": {"labels": {"a": "b"}, "linux": {"cgroup_parent": "/p"}}, "pid": 1}"#;
    assert_eq!(pod(linux).cgroup_parent.as_deref(), Some("/p"));
    assert_eq!(pod(r#"{"config": {"linux": null}}"#).cgroup_parent.as_deref(), Some(""));
    assert_eq!(pod(r#"{"config": null}"#).cgroup_parent, None);
}

#[test]
fn another_runtimes_document_is_none() {
    for info in [r#"{"sandboxID": "pod-1", "runtimeSpec": null}"#, "not JSON", r#"{"config": 7}"#] {
        let details = container(info);
        assert_eq!(details.config, None, "{info}");
        assert_eq!(details.status.id, "id-1");
        assert_eq!(pod(info).cgroup_parent, None);
    }
    let bare = PodSandboxStatusResponse { status: Some(Default::default()), ..Default::default() };
    assert_eq!(PodDetails::read(bare), Some(PodDetails::default()));
    assert_eq!(ContainerDetails::read(ContainerStatusResponse::default()), None);
}

#[test]
fn values_of_the_environment_do_not_show() {
    let text = format!("{:?}", container(TEXT));
    assert!(text.contains("\"B\"") && !text.contains("aGk="), "{text}");
}
