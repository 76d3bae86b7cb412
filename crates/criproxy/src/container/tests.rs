mod properties;

use prost::Message as _;
use wharf_proto::{
    cri,
    hooks::{LinuxContainerResources as Resources, PodSandboxHookRequest, PodSandboxMetadata},
};

use super::*;
use crate::edit::Value;

const OURS: Reading = Reading { zero_oom_score_adj: false };

fn map(pairs: &[(&str, &str)]) -> map::Map {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn env(key: &str, value: impl Into<Vec<u8>>) -> cri::KeyValue {
    cri::KeyValue { key: key.to_owned(), value: value.into() }
}

fn cri_resources(own: &Resources) -> cri::LinuxContainerResources {
    cri::LinuxContainerResources::decode(&*own.encode_to_vec()).unwrap()
}

/// A pod whose hooks changed nothing.
fn pod() -> record::Pod {
    record::Pod::new(&pod_question(), Vec::new())
}

fn pod_question() -> PodSandboxHookRequest {
    let meta = PodSandboxMetadata { name: "p".into(), ..Default::default() };
    PodSandboxHookRequest {
        pod_meta: Some(meta),
        labels: map(&[("l", "1")]),
        annotations: map(&[("pa", "2")]),
        ..Default::default()
    }
}

fn create(
    config: Option<cri::ContainerConfig>,
    sandbox_config: Option<cri::PodSandboxConfig>,
) -> Bytes {
    let pod_sandbox_id = "pod-1".to_owned();
    cri::CreateContainerRequest { pod_sandbox_id, config, sandbox_config }.encode_to_vec().into()
}

fn created(bytes: Bytes) -> cri::CreateContainerRequest {
    cri::CreateContainerRequest::decode(bytes).unwrap()
}

fn create_edits(
    sent: &ContainerResourceHookRequest,
    answer: &ContainerResourceHookResponse,
) -> Vec<Edit> {
    Container::edits(HookPoint::PreCreateContainer, sent, answer, OURS)
}

#[test]
fn a_hook_is_told_of_the_container() {
    let linux = cri::LinuxContainerConfig {
        resources: Some(cri::LinuxContainerResources { cpu_shares: 7, ..Default::default() }),
        ..Default::default()
    };
    let config = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "c".into(), attempt: 2 }),
        annotations: map(&[("a", "1")]),
        linux: Some(linux),
        ..Default::default()
    };
    let linux = cri::LinuxPodSandboxConfig { cgroup_parent: "/asked".into(), ..Default::default() };
    let sandbox = cri::PodSandboxConfig { linux: Some(linux), ..Default::default() };
    let meta = ContainerMetadata { name: "c".into(), attempt: 2, id: String::new() };
    let expected = ContainerResourceHookRequest {
        container_meta: Some(meta),
        container_annotations: map(&[("a", "1")]),
        container_resources: Some(Resources { cpu_shares: 7, ..Default::default() }),
        pod_cgroup_parent: "/asked".into(),
        ..Default::default()
    };
    assert_eq!(
        creation(&create(Some(config), Some(sandbox)), &pod(), true).unwrap().question,
        expected
    );
}

#[test]
fn annotations_resources_and_parent_of_an_answer_reach_the_request() {
    let linux = cri::LinuxContainerConfig {
        resources: Some(cri::LinuxContainerResources {
            cpu_period: 1000,
            cpu_shares: 500,
            oom_score_adj: 10,
            unified: map(&[("A", "a")]),
            ..Default::default()
        }),
        ..Default::default()
    };
    let config = cri::ContainerConfig {
        annotations: map(&[("A", "a")]),
        linux: Some(linux),
        ..Default::default()
    };
    let bytes = create(Some(config), Some(cri::PodSandboxConfig::default()));
    let resources = Resources {
        cpu_period: 2000,
        cpu_shares: 100,
        oom_score_adj: 20,
        unified: map(&[("B", "b")]),
        ..Default::default()
    };
    let answer = ContainerResourceHookResponse {
        container_annotations: map(&[("B", "b")]),
        container_resources: Some(resources),
        pod_cgroup_parent: "/offline".into(),
        ..Default::default()
    };
    let edits = create_edits(&creation(&bytes, &pod(), true).unwrap().question, &answer);
    let result = created(edited(bytes, &[], &edits).unwrap());
    let config = result.config.unwrap();
    assert_eq!(config.annotations, map(&[("A", "a"), ("B", "b")]));
    let resources = config.linux.unwrap().resources.unwrap();
    let numbers = (resources.cpu_period, resources.cpu_shares, resources.oom_score_adj);
    assert_eq!(numbers, (2000, 100, 20));
    assert_eq!(resources.unified, map(&[("A", "a"), ("B", "b")]));
    assert_eq!(result.sandbox_config.unwrap().linux.unwrap().cgroup_parent, "/offline");
}

#[test]
fn what_the_request_lacks_appears_only_if_it_is_needed() {
    let bytes = create(None, None);
    let sent = creation(&bytes, &pod(), true).unwrap().question;
    assert_eq!(sent.container_resources, Some(Resources::default()));
    let empty = ContainerResourceHookResponse {
        container_resources: Some(Resources::default()),
        ..Default::default()
    };
    let edits = create_edits(&sent, &empty);
    assert_eq!(edited(bytes.clone(), &[], &edits), Ok(bytes.clone()));
    let full = ContainerResourceHookResponse {
        container_resources: Some(Resources { cpuset_cpus: "0".into(), ..Default::default() }),
        pod_cgroup_parent: "/p".into(),
        ..Default::default()
    };
    let result = created(edited(bytes, &[], &create_edits(&sent, &full)).unwrap());
    assert_eq!(result.config.unwrap().linux.unwrap().resources.unwrap().cpuset_cpus, "0");
    assert_eq!(result.sandbox_config.unwrap().linux.unwrap().cgroup_parent, "/p");
}

#[test]
fn changes_of_the_pod_are_carried_into_its_containers() {
    let change = |field, to: &str| Edit { field, from: Value::Absent, to: Value::Text(to.into()) };
    let changes = vec![
        change(Field::CgroupParent, "/offline"),
        change(Field::Label("l".into()), "pod's"),
        change(Field::Annotation("a".into()), "pod's"),
    ];
    let pod = record::Pod::new(&pod_question(), changes);
    let sandbox = cri::PodSandboxConfig { labels: map(&[("l", "asked")]), ..Default::default() };
    let bytes = create(None, Some(sandbox));
    let sent = creation(&bytes, &pod, true).unwrap().question;
    assert_eq!(sent.pod_cgroup_parent, "/offline");
    let carried = creation(&bytes, &pod, true).unwrap().carried;
    let result = created(edited(bytes.clone(), &carried, &[]).unwrap());
    let sandbox = result.sandbox_config.unwrap();
    assert_eq!(sandbox.linux.unwrap().cgroup_parent, "/offline");
    assert_eq!(sandbox.labels, map(&[("l", "pod's")]));
    assert_eq!(sandbox.annotations, map(&[("a", "pod's")]));
    assert_eq!(result.config, None);

    let answer = ContainerResourceHookResponse {
        pod_cgroup_parent: "/later".into(),
        container_annotations: map(&[("a", "container's")]),
        ..Default::default()
    };
    let edits = create_edits(&sent, &answer);
    let result = created(edited(bytes, &carried, &edits).unwrap());
    let sandbox = result.sandbox_config.unwrap();
    assert_eq!(sandbox.linux.unwrap().cgroup_parent, "/later");
    assert_eq!(sandbox.annotations, map(&[("a", "pod's")]));
    assert_eq!(result.config.unwrap().annotations, map(&[("a", "container's")]));
}

#[test]
fn changes_that_nobody_remembers_are_found_in_the_sandbox() {
    let sandbox = PodSandboxHookRequest {
        labels: map(&[("added", "1"), ("kept", "old")]),
        annotations: map(&[("added", "2")]),
        cgroup_parent: "/offline".into(),
        ..Default::default()
    };
    let pod = record::Pod::rebuilt(&sandbox, false);
    let config = cri::PodSandboxConfig {
        labels: map(&[("kept", "changed by kubelet")]),
        ..Default::default()
    };
    let bytes = create(None, Some(config));
    assert_eq!(creation(&bytes, &pod, true).unwrap().question.pod_cgroup_parent, "/offline");
    let carried = creation(&bytes, &pod, true).unwrap().carried;
    let result = created(edited(bytes, &carried, &[]).unwrap()).sandbox_config.unwrap();
    assert_eq!(result.labels, map(&[("added", "1"), ("kept", "changed by kubelet")]));
    assert_eq!(result.annotations, map(&[("added", "2")]));
    assert_eq!(result.linux.unwrap().cgroup_parent, "/offline");

    // Another config is looked at anew, whatever the first one came to.
    let config = cri::PodSandboxConfig { labels: map(&[("added", "3")]), ..Default::default() };
    let other = creation(&create(None, Some(config)), &pod, true).unwrap().carried;
    assert!(carried.iter().any(|edit| edit.field == Field::Label("added".into())));
    assert!(!other.iter().any(|edit| edit.field == Field::Label("added".into())));
}

#[test]
fn an_update_overlays_what_is_remembered() {
    let known = Resources { cpu_shares: 7, oom_score_adj: 10, ..Default::default() };
    let own = ContainerResourceHookRequest {
        container_resources: Some(known.clone()),
        ..Default::default()
    };
    let record = record::Container::new("pod-1", "id-1", own);
    let linux = cri::LinuxContainerResources { cpuset_cpus: "0-31".into(), ..Default::default() };
    let update = cri::UpdateContainerResourcesRequest {
        container_id: "id-1".into(),
        linux: Some(linux),
        ..Default::default()
    };
    let asked = update_asked(&update.encode_to_vec().into(), &record).unwrap();
    let expected = Resources { cpuset_cpus: "0-31".into(), ..known };
    assert_eq!(asked.container_resources, Some(expected));
    assert_eq!(asked.container_meta.unwrap().id, "id-1");
}

#[test]
fn an_update_of_a_container_that_nothing_is_known_of_stands_for_itself() {
    let record = record::Container::new("pod-1", "id-1", Default::default());
    let linux =
        cri::LinuxContainerResources { oom_score_adj: 5, cpu_shares: 7, ..Default::default() };
    let update = cri::UpdateContainerResourcesRequest { linux: Some(linux), ..Default::default() };
    let bytes = Bytes::from(update.encode_to_vec());
    let mut finally = update_asked(&bytes, &record).unwrap();
    assert_eq!(updated(bytes.clone(), &finally, true, &[]), Ok(bytes.clone()));
    let answer = ContainerResourceHookResponse {
        container_resources: Some(Resources { cpuset_cpus: "0".into(), ..Default::default() }),
        ..Default::default()
    };
    let edits = Container::edits(HookPoint::PreUpdateContainerResources, &finally, &answer, OURS);
    Container::apply(&mut finally, &edits);
    let result = updated(bytes, &finally, true, &[]).unwrap();
    let linux = cri::UpdateContainerResourcesRequest::decode(result).unwrap().linux.unwrap();
    assert_eq!((linux.oom_score_adj, linux.cpu_shares), (5, 7));
    assert_eq!(linux.cpuset_cpus, "0");
}

#[test]
fn answers_before_a_start_are_remembered_and_later_ones_are_not() {
    let sent = ContainerResourceHookRequest::default();
    let answer = ContainerResourceHookResponse {
        container_annotations: map(&[("a", "1")]),
        container_envs: map(&[("E", "1")]),
        ..Default::default()
    };
    let edits = |point| Container::edits(point, &sent, &answer, OURS);
    assert_eq!(edits(HookPoint::PreStartContainer).len(), 2);
    assert_eq!(edits(HookPoint::PostStartContainer), []);
    assert_eq!(edits(HookPoint::PostStopContainer), []);
}
