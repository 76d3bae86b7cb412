use serde_json::{Value, json};
use wharf_facts::finalizer::SNAPSHOT_RESTORE_PROTECTION;

use super::*;

const DRIVER: &str = "d";

fn claim(change: impl FnOnce(&mut Value)) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": { "name": "new", "namespace": "n", "uid": "u-new" },
        "spec": {
            "storageClassName": "c",
            "volumeMode": "Filesystem",
            "resources": { "requests": { "storage": "2Gi" } },
            "dataSource": { "apiGroup": SNAPSHOT_GROUP, "kind": SNAPSHOT, "name": "s" },
        },
    });
    change(&mut claim);
    serde_json::from_value(claim).unwrap()
}

fn plain() -> PersistentVolumeClaim {
    claim(|_| {})
}

mod restore {
    use super::*;

    fn snapshot(change: impl FnOnce(&mut Value)) -> VolumeSnapshot {
        let mut snapshot = json!({
            "metadata": { "name": "s", "namespace": "n", "uid": "u-s" },
            "status": {
                "boundVolumeSnapshotContentName": "content", "readyToUse": true, "restoreSize": "1Gi",
            },
        });
        change(&mut snapshot);
        serde_json::from_value(snapshot).unwrap()
    }

    fn content(change: impl FnOnce(&mut Value)) -> VolumeSnapshotContent {
        let mut content = json!({
            "metadata": { "name": "content" },
            "spec": {
                "driver": DRIVER,
                "sourceVolumeMode": "Filesystem",
                "volumeSnapshotRef": { "name": "s", "namespace": "n", "uid": "u-s" },
            },
            "status": { "snapshotHandle": "h", "readyToUse": true },
        });
        change(&mut content);
        serde_json::from_value(content).unwrap()
    }

    fn handle(
        claim: &PersistentVolumeClaim,
        snapshot: &VolumeSnapshot,
        content: &VolumeSnapshotContent,
    ) -> Result<String, String> {
        snapshot_handle(claim, DRIVER, snapshot, content, true).map_err(|it| it.to_string())
    }

    #[test]
    fn a_snapshot_is_used_while_it_is_not_deleted() {
        let used = |change: fn(&mut Value)| {
            let snapshot = snapshot(change);
            content_of(&snapshot, SNAPSHOT_RESTORE_PROTECTION)
                .map(str::to_owned)
                .map_err(|it| it.to_string())
        };
        assert_eq!(used(|_| {}), Ok("content".to_owned()));
        let unbound = Err("snapshot s not bound".to_owned());
        assert_eq!(used(|it| it["status"] = json!(null)), unbound);
        let unnamed = |it: &mut Value| it["status"]["boundVolumeSnapshotContentName"] = json!("");
        assert_eq!(used(unnamed), unbound);
        let deleted =
            |it: &mut Value| it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(used(deleted), Err("snapshot s is being deleted".to_owned()));
        let begun = |it: &mut Value| {
            it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            it["metadata"]["finalizers"] = json!([SNAPSHOT_RESTORE_PROTECTION]);
        };
        assert_eq!(used(begun), Ok("content".to_owned()));
    }

    #[test]
    fn snapshot_and_content_have_to_be_each_others() {
        assert_eq!(handle(&plain(), &snapshot(|_| {}), &content(|_| {})), Ok("h".to_owned()));
        for (field, other) in [("uid", "x"), ("namespace", "x"), ("name", "x")] {
            let content = content(|it| it["spec"]["volumeSnapshotRef"][field] = json!(other));
            let refused = handle(&plain(), &snapshot(|_| {}), &content).unwrap_err();
            let text = "snapshotcontent content for snapshot s is bound to a different snapshot";
            assert_eq!(refused, text, "{field}");
        }
        let foreign = content(|it| it["spec"]["driver"] = json!("other"));
        let refused = handle(&plain(), &snapshot(|_| {}), &foreign).unwrap_err();
        let text =
            "snapshotcontent content for snapshot s is not handled by CSI driver of StorageClass c";
        assert_eq!(refused, text);
        for ready in [json!(null), json!(false)] {
            let early = snapshot(|it| it["status"]["readyToUse"] = ready);
            let refused = handle(&plain(), &early, &content(|_| {})).unwrap_err();
            assert_eq!(refused, "snapshot s is not Ready");
        }
        let nameless = content(|it| it["status"] = json!({}));
        let refused = handle(&plain(), &snapshot(|_| {}), &nameless).unwrap_err();
        assert_eq!(refused, "snapshot handle s is not available");
    }

    #[test]
    fn a_volume_is_no_smaller_than_the_snapshot() {
        let sized = |size: &str| {
            let size = json!(size);
            handle(&plain(), &snapshot(|it| it["status"]["restoreSize"] = size), &content(|_| {}))
        };
        assert_eq!(sized("2Gi"), Ok("h".to_owned()));
        let refused = "requested volume size 2147483648 is less than the size 3221225472 for the source snapshot s";
        assert_eq!(sized("3Gi"), Err(refused.to_owned()));
        let unknown = snapshot(|it| it["status"]["restoreSize"] = json!(null));
        assert_eq!(handle(&plain(), &unknown, &content(|_| {})), Ok("h".to_owned()));
    }

    #[test]
    fn the_mode_changes_only_with_permission() {
        let block = claim(|it| it["spec"]["volumeMode"] = json!("Block"));
        let found = |value: Option<&str>| {
            let content = content(|it| {
                if let Some(value) = value {
                    it["metadata"]["annotations"] = json!({ ALLOW_VOLUME_MODE_CHANGE: value });
                }
            });
            handle(&block, &snapshot(|_| {}), &content)
        };
        assert_eq!(found(Some("true")), Ok("h".to_owned()));
        assert!(
            found(None)
                .unwrap_err()
                .ends_with("annotation is not present on snapshotcontent content")
        );
        for value in ["false", "yes", ""] {
            assert!(
                found(Some(value)).unwrap_err().contains("does not have permission"),
                "{value}"
            );
        }
        let free = snapshot_handle(&block, DRIVER, &snapshot(|_| {}), &content(|_| {}), false);
        assert_eq!(free, Ok("h".to_owned()));
        let unknown = content(|it| it["spec"]["sourceVolumeMode"] = json!(null));
        assert_eq!(handle(&block, &snapshot(|_| {}), &unknown), Ok("h".to_owned()));
    }
}

mod cloning {
    use super::*;

    fn source(change: impl FnOnce(&mut Value)) -> PersistentVolumeClaim {
        let mut source = json!({
            "metadata": { "name": "old", "namespace": "n", "uid": "u-old" },
            "spec": {
                "storageClassName": "c",
                "volumeName": "v",
                "resources": { "requests": { "storage": "1Gi" } },
            },
            "status": { "phase": "Bound" },
        });
        change(&mut source);
        serde_json::from_value(source).unwrap()
    }

    fn volume(change: impl FnOnce(&mut Value)) -> PersistentVolume {
        let mut volume = json!({
            "metadata": { "name": "v" },
            "spec": {
                "csi": { "driver": DRIVER, "volumeHandle": "h" },
                "claimRef": { "name": "old", "namespace": "n", "uid": "u-old" },
            },
            "status": { "phase": "Bound" },
        });
        change(&mut volume);
        serde_json::from_value(volume).unwrap()
    }

    #[test]
    fn a_claim_is_cloned_while_it_is_bound() {
        let checked = |claim: &PersistentVolumeClaim, change: fn(&mut Value)| {
            let source = source(change);
            volume_of(claim, &source, Use::New).map(str::to_owned).map_err(|it| it.to_string())
        };
        assert_eq!(checked(&plain(), |_| {}), Ok("v".to_owned()));
        let refused = |change: fn(&mut Value)| checked(&plain(), change).unwrap_err();
        let pending = refused(|it| it["status"]["phase"] = json!("Pending"));
        assert_eq!(pending, "the PVC DataSource old must have a status of Bound.  Got \"Pending\"");
        let deleted =
            refused(|it| it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert_eq!(deleted, "the PVC DataSource old is currently being deleted");
        let deleted =
            source(|it| it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert_eq!(volume_of(&plain(), &deleted, Use::Begun), Ok("v"));
        let classless = refused(|it| it["spec"]["storageClassName"] = json!(null));
        assert_eq!(classless, "the source PVC (old) storageclass cannot be empty");
        let larger = refused(|it| it["spec"]["resources"]["requests"]["storage"] = json!("3Gi"));
        assert!(larger.ends_with("requested 2147483648 but source is 3221225472"), "{larger}");
        let unbound = refused(|it| it["spec"]["volumeName"] = json!(""));
        assert_eq!(unbound, "volume name is empty in source PVC old");
        let classless = claim(|it| it["spec"]["storageClassName"] = json!(null));
        let refused = checked(&classless, |_| {}).unwrap_err();
        assert_eq!(refused, "the requested PVC (new) storageclass cannot be empty");
    }

    #[test]
    fn claim_and_volume_have_to_be_each_others() {
        let cloned = |change: fn(&mut Value)| {
            clone_handle(&plain(), DRIVER, &source(|_| {}), Some(&volume(change)))
        };
        assert_eq!(cloned(|_| {}), Ok("h".to_owned()));
        for change in [
            (|it| it["spec"]["csi"]["driver"] = json!("other")) as fn(&mut Value),
            |it| it["spec"]["csi"] = json!(null),
            |it| it["spec"]["claimRef"] = json!(null),
            |it| it["spec"]["claimRef"]["uid"] = json!("x"),
            |it| it["spec"]["claimRef"]["name"] = json!("x"),
            |it| it["spec"]["claimRef"]["namespace"] = json!("x"),
            |it| it["status"]["phase"] = json!("Released"),
        ] {
            assert_eq!(cloned(change), Err(SourceRefusal::ClaimInvalid), "{:?}", volume(change));
        }
        let gone = clone_handle(&plain(), DRIVER, &source(|_| {}), None);
        assert_eq!(gone, Err(SourceRefusal::ClaimInvalid));
        let block = cloned(|it| it["spec"]["volumeMode"] = json!("Block")).unwrap_err();
        assert!(block.to_string().ends_with("Source is Block, but new PVC requested Filesystem"));
    }
}

#[test]
fn a_claim_has_one_source() {
    let of = |change: fn(&mut Value)| {
        let claim = claim(change);
        match DataSource::of(&claim) {
            Ok(source) => format!("{source:?}"),
            Err(refusal) => refusal.to_string(),
        }
    };
    assert_eq!(of(|_| {}), "Some(Snapshot(\"s\"))");
    assert_eq!(of(|it| it["spec"]["dataSource"] = json!(null)), "None");
    let group = of(|it| it["spec"]["dataSource"]["apiGroup"] = json!("x"));
    assert!(group.ends_with("Expected snapshot.storage.k8s.io, Got x"), "{group}");
    let unnamed = of(|it| it["spec"]["dataSource"]["name"] = json!(""));
    assert_eq!(unnamed, "the PVC source not found for PVC new");
    let cloned = of(|it| it["spec"]["dataSource"] = json!({ "kind": CLAIM, "name": "old" }));
    assert_eq!(cloned, "Some(Claim(\"old\"))");
    let by_reference = |it: &mut Value| {
        it["spec"]["dataSource"] = json!(null);
        it["spec"]["dataSourceRef"] = json!({ "apiGroup": "x.io", "kind": "Book", "name": "b" });
    };
    assert_eq!(of(by_reference), "Some(Populator(\"Book\"))");
    let elsewhere = of(|it| {
        it["spec"]["dataSource"] = json!(null);
        it["spec"]["dataSourceRef"] = json!({ "kind": CLAIM, "name": "b", "namespace": "o" });
    });
    assert!(elsewhere.contains("namespace o: sources of other namespaces"), "{elsewhere}");
}
