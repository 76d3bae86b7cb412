use serde_json::{Value, json};

use super::*;

fn content(change: impl FnOnce(&mut Value)) -> VolumeSnapshotContent {
    let mut content = json!({
        "metadata": {
            "name": "c",
            "uid": "u",
            "annotations": {},
            "finalizers": [finalizer::CONTENT_BOUND_PROTECTION],
        },
        "spec": {
            "deletionPolicy": "Delete",
            "source": { "volumeHandle": "v" },
            "volumeSnapshotRef": { "uid": "s" },
        },
    });
    change(&mut content);
    serde_json::from_value(content).unwrap()
}

fn being_deleted(it: &mut Value) {
    it["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    it["metadata"]["annotations"][annotation::SNAPSHOT_BEING_DELETED] = json!("yes");
    it["status"] = json!({ "snapshotHandle": "h", "readyToUse": true });
}

fn marked(it: &mut Value) {
    it["metadata"]["annotations"][annotation::SNAPSHOT_BEING_CREATED] = json!("yes");
}

#[test]
fn a_snapshot_is_taken_until_it_is_ready() {
    assert_eq!(next(&content(|_| {})), Step::Create);
    let not_ready = |it: &mut Value| it["status"] = json!({ "readyToUse": false });
    assert_eq!(next(&content(not_ready)), Step::Create);
    let ready = |it: &mut Value| it["status"] = json!({ "readyToUse": true });
    assert_eq!(next(&content(ready)), Step::Nothing);
    let ready_and_marked = |it: &mut Value| {
        ready(it);
        marked(it);
    };
    assert_eq!(next(&content(ready_and_marked)), Step::Unmark);
}

#[test]
fn a_snapshot_that_is_there_is_looked_up() {
    let given = |it: &mut Value| it["spec"]["source"] = json!({ "snapshotHandle": "h" });
    assert_eq!(next(&content(given)), Step::Check);
    assert_eq!(next(&content(|it| it["spec"]["source"] = json!({}))), Step::Nothing);
}

#[test]
fn members_of_groups_are_left_alone() {
    let by_annotation = |it: &mut Value| {
        it["metadata"]["annotations"][annotation::GROUP_SNAPSHOT_HANDLE] = json!("g");
    };
    assert_eq!(next(&content(by_annotation)), Step::Nothing);
    let by_status = |it: &mut Value| it["status"] = json!({ "volumeGroupSnapshotHandle": "g" });
    assert_eq!(next(&content(by_status)), Step::Nothing);
    let deleted = |it: &mut Value| {
        being_deleted(it);
        it["status"]["volumeGroupSnapshotHandle"] = json!("g");
    };
    assert_eq!(next(&content(deleted)), Step::Release);
}

#[test]
fn deletion_waits_for_the_word_and_for_the_driver() {
    assert_eq!(next(&content(being_deleted)), Step::Delete);
    let untold = |it: &mut Value| {
        being_deleted(it);
        it["metadata"]["annotations"] = json!({});
    };
    assert_eq!(next(&content(untold)), Step::Nothing);
    let being_created = |it: &mut Value| {
        being_deleted(it);
        marked(it);
        it["status"] = json!({ "readyToUse": false });
    };
    assert_eq!(next(&content(being_created)), Step::Create);
    let unbound = |it: &mut Value| {
        untold(it);
        it["spec"]["source"] = json!({ "snapshotHandle": "h" });
        it["spec"]["volumeSnapshotRef"] = json!({});
    };
    assert_eq!(next(&content(unbound)), Step::Delete);
}

#[test]
fn what_is_kept_or_gone_is_only_released() {
    let retained = |it: &mut Value| {
        being_deleted(it);
        it["spec"]["deletionPolicy"] = json!("Retain");
    };
    assert_eq!(next(&content(retained)), Step::Release);
    let gone = |it: &mut Value| {
        being_deleted(it);
        it["status"] = json!({});
    };
    assert_eq!(next(&content(gone)), Step::Release);
    let free = |it: &mut Value| {
        gone(it);
        it["metadata"]["finalizers"] = json!([]);
    };
    assert_eq!(next(&content(free)), Step::Nothing);
}

#[test]
fn our_own_writes_are_no_reason() {
    let old = content(|_| {});
    let react = |change: fn(&mut Value)| reaction(Some(&old), Some(&content(change)));
    assert_eq!(react(marked), Reaction::None);
    assert_eq!(react(|it| it["status"] = json!({ "readyToUse": false })), Reaction::None);
    assert_eq!(react(|it| it["metadata"]["finalizers"] = json!([])), Reaction::None);
    assert_eq!(react(|it| it["status"] = json!({ "readyToUse": true })), Reaction::Wake);
    assert_eq!(react(|it| it["metadata"]["labels"] = json!({ "a": "b" })), Reaction::Wake);
    assert_eq!(react(being_deleted), Reaction::Renew);
    assert_eq!(react(|it| it["spec"]["deletionPolicy"] = json!("Retain")), Reaction::Renew);
    assert_eq!(reaction(Some(&old), None), Reaction::Forget);
    let waiting = content(|it| {
        being_deleted(it);
        marked(it);
    });
    assert_eq!(reaction(Some(&waiting), Some(&content(being_deleted))), Reaction::Renew);
}
