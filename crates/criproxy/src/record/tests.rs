use prometheus_client::{encoding::text::encode, registry::Registry};
use wharf_proto::hooks::{ContainerMetadata, PodSandboxMetadata};

use super::*;

fn pod(name: &str) -> PodSandboxHookRequest {
    PodSandboxHookRequest {
        pod_meta: Some(PodSandboxMetadata { name: name.into(), ..Default::default() }),
        labels: [("l".to_owned(), "1".to_owned())].into(),
        ..Default::default()
    }
}

fn container(name: &str) -> ContainerResourceHookRequest {
    ContainerResourceHookRequest {
        container_meta: Some(ContainerMetadata { name: name.into(), ..Default::default() }),
        container_envs: [("TOKEN".to_owned(), "s3cret".to_owned())].into(),
        ..Default::default()
    }
}

fn ids(records: &Records, pod: &str) -> Vec<String> {
    records.containers_of(pod).into_iter().map(|(id, _)| id.to_string()).collect()
}

#[test]
fn a_question_is_put_together_from_both_records() {
    let own = Container::new("pod-1", "id-1", container("c"));
    let of_pod = Pod::new(&pod("p"), Vec::new());
    let bytes = [&**of_pod.encoded_pod(), &own.question().encode_to_vec()].concat();
    let question = ContainerResourceHookRequest::decode(&*bytes).unwrap();
    assert_eq!(question.pod_meta, pod("p").pod_meta);
    assert_eq!(question.pod_labels, pod("p").labels);
    let meta = question.container_meta.clone().unwrap();
    assert_eq!((meta.name.as_str(), meta.id.as_str()), ("c", "id-1"));
    assert_eq!(question.container_envs, container("c").container_envs);

    let later = ContainerResourceHookRequest { pod_cgroup_parent: "/new".into(), ..own.question() };
    let own = own.stopped().now(later);
    assert!(own.is_stopped());
    assert_eq!(own.question().pod_cgroup_parent, "/new");
    assert!(Pod::new(&pod("p"), Vec::new()).stopped().is_stopped());
}

#[test]
fn values_of_the_environment_do_not_show() {
    let text = format!("{:?}", Container::new("pod-1", "id-1", container("c")));
    assert!(text.contains("TOKEN") && !text.contains("s3cret"), "{text}");
    assert!(format!("{:?}", Pod::new(&pod("p"), Vec::new())).contains("\"p\""));
}

#[test]
fn what_is_committed_is_there_until_it_is_removed() {
    let records = Records::default();
    assert!(records.pod("").is_none());
    records.commit_pod("", Pod::new(&pod("nameless"), Vec::new()));
    assert_eq!(records.pod("").unwrap().question(), pod("nameless"));
    records.commit_pod("pod-1", Pod::new(&pod("p"), Vec::new()));
    records.commit_container(Container::new("pod-1", "id-1", container("a")));
    records.commit_container(Container::new("pod-1", "id-2", container("b")));
    let held = records.container("id-1").unwrap();
    records.update_container("id-1", Container::stopped);
    records.update_pod("pod-1", Pod::stopped);
    assert!(records.pod("pod-1").unwrap().is_stopped());
    assert!(!held.is_stopped(), "whoever holds a record holds what was");
    assert!(records.container("id-1").unwrap().is_stopped());
    assert_eq!(ids(&records, "pod-1"), ["id-1", "id-2"]);

    records.remove_container("id-1");
    assert_eq!(ids(&records, "pod-1"), ["id-2"]);
    records.remove_pod("pod-1");
    assert!(records.pod("pod-1").is_none() && records.container("id-2").is_none());
    assert!(ids(&records, "pod-1").is_empty());
    records.update_container("id-1", Container::stopped);
    records.update_pod("pod-1", Pod::stopped);
    assert!(records.pod("pod-1").is_none() && records.container("id-1").is_none());
}

/// An update may be answered after the stop that came behind it.
#[test]
fn what_others_recorded_meanwhile_stays() {
    let records = Records::default();
    records.commit_pod("pod-1", Pod::new(&pod("p"), Vec::new()));
    records.commit_container(Container::new("pod-1", "id-1", container("c")));
    let updated =
        ContainerResourceHookRequest { pod_cgroup_parent: "/new".into(), ..container("c") };
    records.update_container("id-1", Container::stopped);
    records.update_container("id-1", |known| known.now(updated));
    records.update_container("id-1", Container::stopped);
    let known = records.container("id-1").unwrap();
    assert!(known.is_stopped(), "its end is not told of again");
    assert_eq!(known.question().pod_cgroup_parent, "/new");
}

#[test]
fn a_rebuild_adds_what_calls_have_not_touched() {
    let records = Records::default();
    let own = |name| Container::new("pod-1", "id-1", container(name));
    let rebuild = records.rebuild();
    records.commit_pod("pod-1", Pod::new(&pod("from a call"), Vec::new()));
    let known = rebuild.pod("pod-1", Pod::rebuilt(&pod("stale"), false)).unwrap();
    assert_eq!(known.question(), pod("from a call"));
    assert!(matches!(known.carried(), Carried::Known(edits) if edits.is_empty()));

    records.commit_container(own("from a call"));
    let known = rebuild.container(own("stale")).unwrap();
    assert_eq!(known.question().container_meta.unwrap().name, "from a call");
    records.remove_container("id-1");
    assert!(rebuild.container(own("stale")).is_none());
    records.remove_pod("pod-1");
    assert!(rebuild.pod("pod-1", Pod::rebuilt(&pod("stale"), false)).is_none());
    let other = Container::new("pod-1", "id-2", container("of a pod that is gone"));
    assert!(rebuild.container(other).is_none());

    assert!(rebuild.pod("pod-2", Pod::rebuilt(&pod("q"), true)).unwrap().is_stopped());
    assert!(matches!(records.pod("pod-2").unwrap().carried(), Carried::Forgotten(_)));
    drop(rebuild);
    assert!(records.rebuild().container(own("made again")).is_some());
}

#[test]
fn records_are_counted() {
    let records = Records::default();
    records.commit_pod("pod-1", Pod::new(&pod("p"), Vec::new()));
    for id in ["id-1", "id-2"] {
        records.commit_container(Container::new("pod-1", id, container("c")));
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(RecordCounts(records)));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in ["wharf_proxy_records{kind=\"pod\"} 1", "wharf_proxy_records{kind=\"container\"} 2"]
    {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

/// The bytes at rest are what a container costs; the maps around them add little.
#[test]
fn a_container_is_small_at_rest() {
    let texts = |count: usize, key: &str, value: &str| {
        (0..count).map(|n| (format!("{key}{n:02}"), value.to_owned())).collect()
    };
    let question = ContainerResourceHookRequest {
        container_annotations: texts(15, "example.com/annotation-", "value of some length"),
        container_envs: texts(20, "SERVICE_HOST_", "10.96.100.200"),
        ..container("c")
    };
    let record = Container::new("pod-1", &"0".repeat(64), question);
    assert!(record.question.len() < 1630, "{} bytes", record.question.len());
    assert!(size_of::<Container>() <= 56);
}

/// The runtime may have made it before it removed its pod, and its answer come last.
#[test]
fn a_container_of_a_pod_that_is_gone_is_not_recorded() {
    let records = Records::default();
    records.commit_pod("pod-1", Pod::new(&pod("p"), Vec::new()));
    records.remove_pod("pod-1");
    records.commit_container(Container::new("pod-1", "id-1", container("late")));
    assert!(records.container("id-1").is_none() && ids(&records, "pod-1").is_empty());
}

#[test]
fn who_was_told_is_remembered_until_all_are() {
    let records = Records::default();
    let who = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    records.commit_pod("pod-1", Pod::new(&pod("p"), Vec::new()));
    records.commit_container(Container::new("pod-1", "id-1", container("c")));
    for (id, stop) in
        [("pod-1", Records::stop_pod as fn(&_, &_)), ("id-1", Records::stop_container)]
    {
        assert_eq!(records.notified(id), who(&[]));
        records.set_notified(id, who(&["a", "b"]));
        assert_eq!(records.notified(id), who(&["a", "b"]));
        stop(&records, id);
        assert_eq!(records.notified(id), who(&[]));
        records.set_notified(id, who(&["a"]));
    }
    records.remove_pod("pod-1");
    records.set_notified("id-1", who(&["a"]));
    assert_eq!((records.notified("pod-1"), records.notified("id-1")), (who(&[]), who(&[])));
}

#[test]
fn the_beginning_of_an_id_is_enough_to_forget_it() {
    let records = Records::default();
    for id in ["abc1", "abc2", "abd1"] {
        records.commit_pod(id, Pod::new(&pod("p"), Vec::new()));
        records.commit_container(Container::new(id, &format!("c-{id}"), container("c")));
    }
    for nothing in ["", "ab", "abc", "x"] {
        records.forget_pod(nothing);
        records.forget_container(nothing);
    }
    assert_eq!(records.ids().len(), 6, "none, or more than one");
    records.forget_container("c-abc1");
    records.forget_container("c-abd");
    records.forget_pod("abd");
    assert!(records.container("c-abc1").is_none() && records.container("c-abd1").is_none());
    assert!(records.pod("abd1").is_none() && records.pod("abc1").is_some());
}
