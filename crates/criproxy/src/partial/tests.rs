use wharf_proto::hooks::HugepageLimit;

use super::*;

fn map(pairs: &[(&str, &str)]) -> Map {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn list(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

fn sent() -> ContainerResourceHookRequest {
    ContainerResourceHookRequest {
        container_annotations: map(&[("note", "kept")]),
        container_envs: map(&[("A", "1"), ("B", "2")]),
        pod_cgroup_parent: "/kubepods".to_owned(),
        container_resources: Some(Resources {
            cpu_shares: 512,
            oom_score_adj: 998,
            cpuset_cpus: "0-3".to_owned(),
            cpuset_mems: "0".to_owned(),
            unified: map(&[("memory.high", "7")]),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn resources(edit: impl FnOnce(&mut Resources)) -> ContainerResourceHookResponse {
    let mut resources = Resources::default();
    edit(&mut resources);
    ContainerResourceHookResponse { container_resources: Some(resources), ..Default::default() }
}

fn removing(removals: Removals) -> ContainerResourceHookResponse {
    ContainerResourceHookResponse { removals: Some(removals), ..Default::default() }
}

fn fields(point: HookPoint, answer: &ContainerResourceHookResponse) -> Vec<String> {
    let edits = of_container(point, &sent(), answer).unwrap();
    edits.iter().map(|edit| edit.field.to_string()).collect()
}

const CREATE: HookPoint = HookPoint::PreCreateContainer;
const UPDATE: HookPoint = HookPoint::PreUpdateContainerResources;

#[test]
fn what_an_answer_does_not_name_stays() {
    assert_eq!(fields(CREATE, &resources(|_| {})), [""; 0]);
    assert_eq!(fields(CREATE, &resources(|own| own.cpu_shares = 7)), ["cpu_shares"]);
    assert_eq!(fields(CREATE, &resources(|own| own.cpuset_cpus = "1".into())), ["cpuset_cpus"]);
    let answer = ContainerResourceHookResponse {
        container_envs: map(&[("C", "3"), ("A", "1")]),
        ..Default::default()
    };
    assert_eq!(fields(CREATE, &answer), ["envs[C]"]);
}

#[test]
fn what_shall_go_is_named() {
    let removals = Removals {
        annotations: list(&["note", "other"]),
        envs: list(&["B"]),
        unified: list(&["memory.high"]),
        cpuset_cpus: true,
        cpuset_mems: true,
        ..Default::default()
    };
    let edits = of_container(CREATE, &sent(), &removing(removals.clone())).unwrap();
    let fields: Vec<_> = edits.iter().map(|edit| edit.field.to_string()).collect();
    let expected =
        ["annotations[note]", "envs[B]", "cpuset_cpus", "cpuset_mems", "unified[memory.high]"];
    assert_eq!(fields, expected, "what is not there cannot go");
    let mut request = sent();
    <crate::container::Container as crate::subject::Subject>::apply(&mut request, &edits);
    let expected = ContainerResourceHookRequest {
        container_annotations: Map::new(),
        container_envs: map(&[("A", "1")]),
        container_resources: Some(Resources {
            cpu_shares: 512,
            oom_score_adj: 998,
            ..Default::default()
        }),
        ..sent()
    };
    assert_eq!(request, expected);
    // A server may repeat all that it was sent, for other proxies.
    let echo = ContainerResourceHookResponse {
        container_envs: sent().container_envs,
        container_resources: sent().container_resources,
        ..removing(removals)
    };
    assert_eq!(of_container(CREATE, &sent(), &echo).unwrap(), edits);
}

#[test]
fn what_cannot_be_applied_is_named() {
    let env = |key: &str| ContainerResourceHookResponse {
        container_envs: map(&[(key, "new")]),
        ..Default::default()
    };
    let both = ContainerResourceHookResponse {
        removals: Some(Removals { envs: list(&["A"]), ..Default::default() }),
        ..env("A")
    };
    let moved =
        ContainerResourceHookResponse { pod_cgroup_parent: "/other".into(), ..Default::default() };
    let labels = Removals { labels: list(&["a"]), ..Default::default() };
    let cpus = Removals { cpuset_cpus: true, ..Default::default() };
    for (point, answer, field) in [
        (CREATE, resources(|own| own.cpu_shares = -1), "cpu_shares"),
        (CREATE, resources(|own| own.cpu_quota = -2), "cpu_quota"),
        (CREATE, resources(|own| own.oom_score_adj = 1001), "oom_score_adj"),
        (
            CREATE,
            resources(|own| own.hugepage_limits = vec![Default::default()]),
            "hugepage_limits",
        ),
        (CREATE, both, "envs[A]"),
        (CREATE, removing(labels), "removals.labels"),
        (UPDATE, env("A"), "envs[A]"),
        (UPDATE, moved, "cgroup_parent"),
        (UPDATE, removing(cpus), "cpuset_cpus"),
        (HookPoint::PreStartContainer, resources(|own| own.cpu_shares = 7), "cpu_shares"),
    ] {
        let error = of_container(point, &sent(), &answer).unwrap_err();
        assert_eq!(error.field, field);
        assert!(error.to_string().contains(field), "{error}");
    }
    assert_eq!(fields(CREATE, &resources(|own| own.cpu_quota = -1)), ["cpu_quota"]);
}

/// A server that keeps them by size answers in another order than the kubelet's.
#[test]
fn huge_pages_may_be_repeated_in_any_order() {
    let limits = ["2MB", "1GB"].map(|size| HugepageLimit { page_size: size.into(), limit: 1 });
    let mut sent = sent();
    sent.container_resources.as_mut().unwrap().hugepage_limits = limits.to_vec();
    let mut limits = limits.to_vec();
    limits.reverse();
    let answer = resources(|own| own.hugepage_limits.clone_from(&limits));
    assert_eq!(of_container(CREATE, &sent, &answer), Ok(Vec::new()));
    limits[0].limit = 2;
    let answer = resources(|own| own.hugepage_limits = limits);
    assert_eq!(of_container(CREATE, &sent, &answer).unwrap_err().field, "hugepage_limits");
}

#[test]
fn a_pod_likewise() {
    let sent = PodSandboxHookRequest {
        labels: map(&[("app", "web"), ("tier", "1")]),
        annotations: map(&[("a", "b")]),
        ..Default::default()
    };
    let answer = PodSandboxHookResponse {
        labels: map(&[("new", "1")]),
        removals: Some(Removals {
            labels: list(&["tier"]),
            annotations: list(&["a"]),
            ..Default::default()
        }),
        ..Default::default()
    };
    let fields: Vec<_> =
        of_pod(&sent, &answer).unwrap().iter().map(|edit| edit.field.to_string()).collect();
    assert_eq!(fields, ["labels[new]", "labels[tier]", "annotations[a]"]);
    let resources = Some(Resources { cpu_shares: 1, ..Default::default() });
    let answer = PodSandboxHookResponse { resources, ..Default::default() };
    assert_eq!(of_pod(&sent, &answer).unwrap_err().field, "resources");
    let removals = Some(Removals { envs: list(&["A"]), ..Default::default() });
    let answer = PodSandboxHookResponse { removals, ..Default::default() };
    assert_eq!(of_pod(&sent, &answer).unwrap_err().field, "removals.envs");
}
