use serde_json::json;

use super::*;

/// A pod with the claim `c`, on this node if any, in a cluster with these claims and attachments of
/// volume `v`.
fn cluster(node: &str, claims: &[Value], attachments: &[Value]) -> ClusterSnapshot {
    let pod = json!({
        "metadata": { "name": "p", "namespace": "n", "uid": "p" },
        "spec": {
            "nodeName": node,
            "volumes": [
                { "name": "token", "projected": {} },
                { "name": "data", "persistentVolumeClaim": { "claimName": "c" } },
            ],
        },
        "status": {
            "phase": "Pending",
            "conditions": [{ "type": "PodScheduled", "status": "False", "message": "0/3 nodes" }],
        },
    });
    let csi_node = json!({
        "metadata": { "name": "here" },
        "spec": { "drivers": [{ "name": "d", "nodeID": "1" }] },
    });
    ClusterSnapshot {
        claims: claims.iter().map(|it| Listed::of(it.clone()).unwrap()).collect(),
        attachments: attachments.iter().map(|it| Listed::of(it.clone()).unwrap()).collect(),
        csi_nodes: vec![Listed::of(csi_node).unwrap()],
        pods: vec![pod],
        ..ClusterSnapshot::default()
    }
}

fn claim_in(phase: &str) -> Value {
    json!({
        "metadata": { "name": "c", "namespace": "n" },
        "spec": { "volumeName": if phase == "Bound" { "v" } else { "" }, "accessModes": ["ReadWriteOnce"] },
        "status": { "phase": phase },
    })
}

fn attachment(node: &str, attached: bool) -> Value {
    json!({
        "metadata": { "name": "a" },
        "spec": { "attacher": "d", "nodeName": node, "source": { "persistentVolumeName": "v" } },
        "status": { "attached": attached },
    })
}

#[test]
fn a_pending_pod_waits_for_its_volumes_in_turn() {
    let bound = || claim_in("Bound");
    for (cluster, who, what) in [
        (cluster("", &[], &[]), "a person", "claim n/c does not exist"),
        (
            cluster("", &[claim_in("Pending")], &[]),
            "a person",
            "claim n/c is Pending: it names no class",
        ),
        (cluster("", &[bound()], &[]), "kube-scheduler", "it has no node yet: 0/3 nodes"),
        (
            cluster("here", &[bound()], &[attachment("here", false)]),
            "attacher",
            "volume v is not attached: driver d has to attach it to here",
        ),
        (
            cluster("here", &[bound()], &[attachment("there", true)]),
            "kube-controller-manager",
            "volume v is attached to there, and has to be detached",
        ),
        (cluster("here", &[bound()], &[attachment("here", true)]), "kubelet", "have to be mounted"),
        (cluster("here", &[bound()], &[]), "kubelet", "have to be mounted"),
    ] {
        let finding = finding(&cluster, &cluster.pods[0]).unwrap();
        let (found_who, found) = (finding.who.unwrap(), finding.waits_for.unwrap());
        assert_eq!(found_who, who, "{found}");
        assert!(found.contains(what), "{found}");
        assert_eq!(finding.stage, "Pending");
    }
}

#[test]
fn a_pod_that_runs_or_has_ended_waits_for_nobody() {
    for (phase, deleted, stage, who) in [
        ("Running", Value::Null, "Running", None),
        ("Succeeded", json!("2026-01-01T00:00:00Z"), "Succeeded", None),
        ("Running", json!("2026-01-01T00:00:00Z"), "Terminating", Some("kubelet")),
    ] {
        let mut cluster = cluster("here", &[], &[]);
        cluster.pods[0]["status"]["phase"] = json!(phase);
        cluster.pods[0]["metadata"]["deletionTimestamp"] = deleted;
        let finding = finding(&cluster, &cluster.pods[0]).unwrap();
        assert_eq!((finding.stage.as_str(), finding.who.as_deref()), (stage, who));
    }
}

#[test]
fn generic_ephemeral_volumes_have_claims_too() {
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": { "volumes": [
            { "name": "a", "persistentVolumeClaim": { "claimName": "c" } },
            { "name": "b", "ephemeral": { "volumeClaimTemplate": {} } },
            { "name": "d", "emptyDir": {} },
        ] },
    });
    assert_eq!(claims(&pod).collect::<Vec<_>>(), ["c", "p-b"]);
}
