use serde_json::{Value, json};

use super::*;

fn listed<K: Kind>(whole: &Value) -> Listed<K> {
    Listed::of(whole.clone()).unwrap()
}

/// A pod with a claim whose volume is attached, and a snapshot of the claim.
fn cluster() -> ClusterSnapshot {
    ClusterSnapshot {
        claims: vec![listed(&json!({
            "metadata": { "name": "c", "namespace": "n", "uid": "c" },
            "spec": { "volumeName": "v" },
            "status": { "phase": "Bound" },
        }))],
        volumes: vec![listed(&json!({
            "metadata": { "name": "v", "uid": "v" },
            "spec": { "csi": { "driver": "d" }, "claimRef": { "namespace": "n", "name": "c", "uid": "c" } },
            "status": { "phase": "Bound" },
        }))],
        attachments: vec![listed(&json!({
            "metadata": { "name": "a", "uid": "a" },
            "spec": { "attacher": "d", "nodeName": "here", "source": { "persistentVolumeName": "v" } },
            "status": { "attached": true },
        }))],
        snapshots: vec![listed(&json!({
            "metadata": { "name": "s", "namespace": "n", "uid": "s" },
            "spec": { "source": { "persistentVolumeClaimName": "c" } },
            "status": { "boundVolumeSnapshotContentName": "sc" },
        }))],
        contents: vec![listed(&json!({
            "metadata": { "name": "sc", "uid": "sc" },
            "spec": {
                "driver": "d",
                "deletionPolicy": "Delete",
                "source": { "volumeHandle": "h" },
                "volumeSnapshotRef": { "namespace": "n", "name": "s", "uid": "s" },
            },
            "status": { "error": { "message": "no room" } },
        }))],
        pods: vec![json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "p" },
            "spec": {
                "nodeName": "here",
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }],
            },
            "status": { "phase": "Running" },
        })],
        ..ClusterSnapshot::default()
    }
}

#[test]
fn kinds_are_named_as_kubectl_names_them() {
    for (text, kind) in [
        ("pvc/data", SubjectKind::Claim),
        ("PersistentVolumeClaims/data", SubjectKind::Claim),
        ("pv/data", SubjectKind::Volume),
        ("PersistentVolume/data", SubjectKind::Volume),
        ("vs/data", SubjectKind::Snapshot),
        ("volumesnapshots.snapshot.storage.k8s.io/data", SubjectKind::Snapshot),
        ("vsc/data", SubjectKind::Content),
        ("VolumeSnapshotContent/data", SubjectKind::Content),
        ("va/data", SubjectKind::Attachment),
        ("VOLUMEATTACHMENTS.v1.storage.k8s.io/data", SubjectKind::Attachment),
        ("po/data", SubjectKind::Pod),
        ("Pods/data", SubjectKind::Pod),
    ] {
        assert_eq!(text.parse(), Ok(Subject { kind, name: "data".to_owned() }), "{text}");
    }
    for wrong in ["data", "pvc/", "", "node/a", "/a", "pvc/a/b"] {
        let error = wrong.parse::<Subject>().unwrap_err();
        assert!(
            error.contains("pvc/NAME, pv/NAME, vs/NAME, vsc/NAME, va/NAME, pod/NAME"),
            "{error}"
        );
    }
    let error = "node/a".parse::<Subject>().unwrap_err();
    assert!(error.starts_with("there is no kind \"node\": "), "{error}");
}

#[test]
fn an_object_is_explained_with_what_it_depends_on() {
    for (subject, wanted) in [
        ("pvc/c", "claim c, volume v, attachment a"),
        ("pv/v", "volume v, claim c, attachment a"),
        ("va/a", "attachment a, volume v, claim c, pod p"),
        ("vs/s", "snapshot s, content sc, claim c"),
        ("vsc/sc", "content sc, snapshot s, claim c"),
        ("pod/p", "pod p, claim c, volume v, attachment a"),
        ("pvc/other", ""),
        ("pv/other", ""),
        ("va/other", ""),
        ("vs/other", ""),
        ("vsc/other", ""),
        ("pod/other", ""),
    ] {
        let findings = cluster().findings_of(&subject.parse().unwrap(), "n");
        let found: Vec<_> = findings.iter().map(|it| format!("{} {}", it.kind, it.name)).collect();
        assert_eq!(found.join(", "), wanted, "{subject}");
    }
    assert!(cluster().findings_of(&"pvc/c".parse().unwrap(), "elsewhere").is_empty());
}

#[test]
fn a_content_tells_what_its_driver_has_to_do() {
    let found = |change: &dyn Fn(&mut ClusterSnapshot)| {
        let mut cluster = cluster();
        change(&mut cluster);
        let finding = cluster.findings_of(&"vsc/sc".parse().unwrap(), "n").remove(0);
        let text = |field: Option<String>| field.unwrap_or_default();
        (finding.stage, text(finding.who), text(finding.waits_for), text(finding.last_error))
    };
    let wanted = |stage: &str, who: &str, what: &str, error: &str| {
        (stage.to_owned(), who.to_owned(), what.to_owned(), error.to_owned())
    };
    let error = "no room";
    let taken = wanted("Pending", "snapshotter", "driver d has to take it", error);
    assert_eq!(found(&|_| {}), taken);
    let given = |cluster: &mut ClusterSnapshot| {
        cluster.contents[0].object.spec.source.snapshot_handle = Some("h".to_owned());
    };
    let looked_up = "driver d has to find snapshot h";
    assert_eq!(found(&given), wanted("Pending", "snapshotter", looked_up, error));
    let ready = |cluster: &mut ClusterSnapshot| {
        cluster.contents[0].object.status.as_mut().unwrap().ready_to_use = Some(true);
    };
    assert_eq!(found(&ready), wanted("Ready", "", "", ""));
    let deleted =
        |cluster: &mut ClusterSnapshot| cluster.contents[0].object.metadata.deleting = true;
    let bound = "VolumeSnapshot n/s is bound to it and has to go first";
    assert_eq!(found(&deleted), wanted("Terminating", "a person", bound, error));
    let both = |cluster: &mut ClusterSnapshot| {
        cluster.contents[0].object.metadata.deleting = true;
        cluster.snapshots[0].object.metadata.deleting = true;
    };
    let gone = "driver d has to delete it";
    assert_eq!(found(&both), wanted("Terminating", "snapshotter", gone, error));
    // CreateSnapshot has no final answer: it is repeated with the parameters of its class or its
    // mark.
    let asked = |mark: &'static str, class: Option<&'static str>| {
        move |cluster: &mut ClusterSnapshot| {
            both(cluster);
            let content = &mut cluster.contents[0].object;
            let key = wharf_facts::annotation::SNAPSHOT_BEING_CREATED;
            content.metadata.annotations = [(key, mark)].into_iter().collect();
            content.spec.volume_snapshot_class_name = Some("missing".into());
            let class = class.map(|parameter| {
                json!({ "metadata": { "name": "missing" }, "driver": "d", "parameters": { parameter: "b" } })
            });
            cluster.snapshot_classes.clear();
            cluster.snapshot_classes.extend(class.iter().map(listed));
        }
    };
    let again = "CreateSnapshot has no final answer: driver d is asked again, and then to delete the snapshot";
    let again = wanted("Terminating", "snapshotter", again, error);
    let reserved = "csi.storage.k8s.io/nope";
    for class in [None, Some("a"), Some(reserved)] {
        assert_eq!(found(&asked("{\"a\":\"b\"}", class)), again, "{class:?}");
    }
    assert_eq!(found(&asked("yes", Some("a"))), again);
    for (class, is) in [(None, "does not exist"), (Some(reserved), "is refused")] {
        let what = format!(
            "driver d may have a snapshot for it, and VolumeSnapshotClass missing, by which it was asked for, {is}: bring it back as it was"
        );
        assert_eq!(found(&asked("yes", class)), wanted("Terminating", "a person", &what, error));
    }
    // No call was made yet.
    let waits = |cluster: &mut ClusterSnapshot| {
        asked("", None)(cluster);
        let metadata = &mut cluster.contents[0].object.metadata;
        (metadata.annotations, metadata.deleting) = (wharf_cluster::Attributes::default(), false);
    };
    let what = "VolumeSnapshotClass missing does not exist";
    assert_eq!(found(&waits), wanted("Pending", "a person", what, error));
}
