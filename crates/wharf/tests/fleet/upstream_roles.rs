//! The rights in upstream's manifests: deploy/kubernetes of external-provisioner 6.3,
//! external-attacher 4.12, external-resizer 2.2 and external-snapshotter 8.6.

const READ: &[&str] = &["get", "list", "watch"];
const LEASES: &[&str] = &["get", "watch", "list", "delete", "update", "create"];
const EVENTS: &[&str] = &["list", "watch", "create", "update", "patch"];
const ALL: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

const PROVISIONER: &[(&str, &[&str])] = &[
    ("persistentvolumes", &["get", "list", "watch", "create", "patch", "delete"]),
    ("persistentvolumeclaims", &["get", "list", "watch", "update"]),
    ("storageclasses.storage.k8s.io", READ),
    ("events", EVENTS),
    ("volumesnapshots.snapshot.storage.k8s.io", &["get", "list", "watch", "update"]),
    ("volumesnapshotcontents.snapshot.storage.k8s.io", &["get", "list"]),
    ("csinodes.storage.k8s.io", READ),
    ("nodes", READ),
    ("volumeattachments.storage.k8s.io", READ),
    ("leases.coordination.k8s.io", LEASES),
    ("csistoragecapacities.storage.k8s.io", ALL),
    ("pods", &["get"]),
    ("replicasets.apps", &["get"]),
];
const ATTACHER: &[(&str, &[&str])] = &[
    ("persistentvolumes", &["get", "list", "watch", "patch"]),
    ("csinodes.storage.k8s.io", READ),
    ("volumeattachments.storage.k8s.io", &["get", "list", "watch", "patch"]),
    ("volumeattachments/status.storage.k8s.io", &["patch"]),
    ("leases.coordination.k8s.io", LEASES),
];
const RESIZER: &[(&str, &[&str])] = &[
    ("persistentvolumes", &["get", "list", "watch", "patch"]),
    ("persistentvolumeclaims", READ),
    ("pods", READ),
    ("persistentvolumeclaims/status", &["patch"]),
    ("events", EVENTS),
    ("volumeattributesclasses.storage.k8s.io", READ),
    ("leases.coordination.k8s.io", LEASES),
];
const SNAPSHOTTER: &[(&str, &[&str])] = &[
    ("events", EVENTS),
    ("volumesnapshotclasses.snapshot.storage.k8s.io", READ),
    (
        "volumesnapshotcontents.snapshot.storage.k8s.io",
        &["get", "list", "watch", "update", "patch"],
    ),
    ("volumesnapshotcontents/status.snapshot.storage.k8s.io", &["update", "patch"]),
    (
        "volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io",
        &["get", "list", "watch", "update", "patch"],
    ),
    ("leases.coordination.k8s.io", LEASES),
];
const SNAPSHOT_CONTROLLER: &[(&str, &[&str])] = &[
    ("persistentvolumes", READ),
    ("persistentvolumeclaims", &["get", "list", "watch", "update"]),
    ("events", EVENTS),
    ("volumesnapshotclasses.snapshot.storage.k8s.io", READ),
    ("volumesnapshotcontents.snapshot.storage.k8s.io", ALL),
    ("volumesnapshotcontents/status.snapshot.storage.k8s.io", &["patch"]),
    ("volumesnapshots.snapshot.storage.k8s.io", ALL),
    ("volumesnapshots/status.snapshot.storage.k8s.io", &["update", "patch"]),
    (
        "volumegroupsnapshots.groupsnapshot.storage.k8s.io",
        &["get", "list", "watch", "update", "patch"],
    ),
    ("leases.coordination.k8s.io", LEASES),
];

/// Whether upstream's manifest for a controller grants a verb on `resource.group`, without the
/// operator's own additions.
pub(crate) fn grants(controller: &str, verb: &str, what: &str) -> bool {
    let role = match controller {
        "provisioner" => PROVISIONER,
        "attacher" => ATTACHER,
        "resizer" => RESIZER,
        "snapshotter" => SNAPSHOTTER,
        "snapshot-controller" => SNAPSHOT_CONTROLLER,
        _ => return false,
    };
    role.iter().any(|(resource, verbs)| *resource == what && verbs.contains(&verb))
}
