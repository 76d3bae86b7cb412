use wharf_hooks::Pod;

use super::*;

fn parse(text: &str) -> Result<Rules, RulesError> {
    Rules::parse(Path::new("rules.yaml"), text)
}

fn pod(namespace: &str, cgroup_parent: &str) -> Pod {
    let mut pod = Pod::default();
    pod.namespace = namespace.to_owned();
    pod.cgroup_parent = cgroup_parent.to_owned();
    pod.labels = [("tier".to_owned(), "batch".to_owned())].into();
    pod
}

fn container(pod: Pod, name: &str) -> Container {
    let mut container = Container::default();
    container.pod = pod;
    container.name = name.to_owned();
    container
}

#[test]
fn later_rules_win_field_by_field() {
    let rules = parse(
        r#"
        rules:
          - name: everybody
            set: { cpuShares: 100, cpuset: 0-3, memory: 1Gi, env: { A: "1", B: 2 } }
          - name: batch
            match: { namespaces: ["batch-*"], labels: { tier: batch }, qos: [BestEffort], containers: [main] }
            set: { cpuset: 3, env: { A: x }, annotations: { a: b } }
        "#,
    )
    .unwrap();
    let everybody = || {
        ContainerAdjustment::new()
            .cpu_shares(100)
            .cpuset("0-3")
            .memory(1 << 30)
            .env("A", "1")
            .env("B", "2")
    };
    let batch = everybody().cpuset("3").env("A", "x").annotation("a", "b");
    let best_effort = "/kubepods/besteffort/pod1";
    assert_eq!(rules.container(&container(pod("batch-1", best_effort), "main")), batch);
    for (namespace, parent, name) in [
        ("batch", best_effort, "main"),
        ("batch-1", "/kubepods/pod1", "main"),
        ("batch-1", "", "main"),
        ("batch-1", best_effort, "sidecar"),
    ] {
        let other = container(pod(namespace, parent), name);
        assert_eq!(rules.container(&other), everybody(), "{namespace} {parent} {name}");
    }
    let mut other = container(pod("batch-1", best_effort), "main");
    other.pod.labels.clear();
    assert_eq!(rules.container(&other), everybody());
    let update = ResourceAdjustment::new().cpu_shares(100).cpuset("3").memory(1 << 30);
    assert_eq!(rules.resources(&container(pod("batch-1", best_effort), "main")), update);
}

#[test]
fn a_pod_moves_with_its_containers() {
    let rules = parse(
        "rules: [{ name: move, match: { qos: [BestEffort] }, set: { cgroupParent: /batch, podLabels: { moved: yes } } }]",
    )
    .unwrap();
    let mut sandbox = PodSandbox::default();
    sandbox.pod = pod("n", "/kubepods/besteffort/pod1");
    let moved = PodAdjustment::new().cgroup_parent("/batch").label("moved", "yes");
    assert_eq!(rules.sandbox(&sandbox), moved);
    // Its class is still seen, though its cgroup is another.
    let mut own = container(pod("n", "/batch"), "c");
    own.resources.oom_score_adj = 1000;
    assert_eq!(rules.container(&own), ContainerAdjustment::new().cgroup_parent("/batch"));
}

#[test]
fn points_follow_from_the_rules() {
    use HookPoint::*;
    for (set, points) in [
        ("cpuset: '0'", &[PreCreateContainer, PreUpdateContainerResources][..]),
        ("env: { A: b }", &[PreCreateContainer]),
        ("annotations: { a: b }", &[PreCreateContainer]),
        ("cgroupParent: /a", &[PreRunPodSandbox, PreCreateContainer]),
        ("podAnnotations: { a: b }", &[PreRunPodSandbox]),
    ] {
        let rules = parse(&format!("rules: [{{ name: a, set: {{ {set} }} }}]")).unwrap();
        assert_eq!(rules.points(), points.iter().copied().collect(), "{set}");
    }
    assert!(parse("rules: []").unwrap().points().is_empty());
}

#[test]
fn mistakes_are_named_with_their_rule_and_key() {
    for (rule, wanted) in [
        ("name: a, set: { cpuset: 3-1 }", "rule \"a\": rules[0].set.cpuset: expected a list"),
        ("name: a, set: { cpusetMems: x }", "set.cpusetMems: expected a list"),
        ("name: a, set: { cpuShares: 0 }", "set.cpuShares: expected 1 to"),
        ("name: a, set: { memory: 0 }", "set.memory: expected 1 to"),
        ("name: a, set: { memory: 1.5Gi }", "rules[0].set.memory: expected bytes"),
        ("name: a, set: { cpuShares: much }", "rules[0].set.cpuShares: "),
        ("name: a, set: { env: { 'A=B': secret } }", "set.env: expected names"),
        (r#"name: a, set: { env: { A_B: "secret\0" } }"#, "set.env[A_B]: expected a value"),
        ("name: a, set: { cgroupParent: '' }", "set.cgroupParent: expected a path"),
        ("name: a, set: { podLabels: { '': a } }", "set.podLabels: expected keys"),
        ("name: a, set: { podLabels: { io.kubernetes.pod.uid: a } }", "io.kubernetes.pod.uid"),
        ("name: a, set: {}", "set: expected at least one key"),
        ("name: a", "set"),
        ("name: '', set: { cpuset: '0' }", "name: expected"),
        ("set: { cpuset: '0' }", "name"),
        ("name: a, set: { cpuSet: '0' }", "rules[0].set.cpuSet: unknown field"),
        ("name: a, matches: {}, set: { cpuset: '0' }", "matches"),
        ("name: a, match: { namespaces: [] }, set: { cpuset: '0' }", "match.namespaces: expected"),
        (
            "name: a, match: { namespaces: ['a*b'] }, set: { cpuset: '0' }",
            "rules[0].match.namespaces[0]: expected a name",
        ),
        (
            "name: a, match: { qos: [Best] }, set: { cpuset: '0' }",
            "rules[0].match.qos: expected Guaranteed",
        ),
        (
            "name: a, match: { containers: [c] }, set: { cgroupParent: /a }",
            "beside match.containers",
        ),
    ] {
        let error = parse(&format!("rules: [{{ {rule} }}]")).err().unwrap().to_string();
        assert!(error.starts_with("rules.yaml: ") && error.contains(wanted), "{rule}: {error}");
        assert!(!error.contains("secret"), "{rule}: {error}");
    }
    let twice = "rules: [{ name: a, set: { cpuset: '0' } }, { name: a, set: { cpuset: '9-1' } }]";
    let error = parse(twice).err().unwrap().to_string();
    assert!(
        error.contains("rule \"a\": rules[1].name")
            && error.contains("rule \"a\": rules[1].set.cpuset"),
        "{error}"
    );
    for text in ["", "[]", "rules: 1", "rules: [", "rule: []", "rules: []\nmore: 1"] {
        assert!(parse(text).is_err(), "{text}");
    }
}
