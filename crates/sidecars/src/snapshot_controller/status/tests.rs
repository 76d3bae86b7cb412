use super::*;

const SOURCE: &str = finalizer::SNAPSHOT_SOURCE_PROTECTION;
const BOUND: &str = finalizer::SNAPSHOT_BOUND_PROTECTION;

fn snapshot(finalizers: &[&str], status: &Value) -> VolumeSnapshot {
    let metadata = json!({ "uid": "u", "resourceVersion": "7", "finalizers": finalizers });
    serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
}

fn content(status: &Value) -> VolumeSnapshotContent {
    serde_json::from_value(json!({ "metadata": { "name": "c" }, "status": status })).unwrap()
}

fn merged(patch: Option<Patch>) -> Value {
    match patch {
        Some(Patch::Merge(body)) => body,
        None => Value::Null,
        Some(patch) => panic!("{patch:?}"),
    }
}

fn mirrored(old: &Value, found: &Value) -> Value {
    merged(mirror(&snapshot(&[], old), &content(found)))["status"].clone()
}

#[test]
fn one_patch_gives_class_and_finalizers() {
    let new = snapshot(&["other"], &Value::Null);
    let expected = json!({
        "metadata": { "resourceVersion": "7", "finalizers": ["other", SOURCE, BOUND] },
        "spec": { "volumeSnapshotClassName": "gold" },
    });
    assert_eq!(merged(prepare(&new, Some("gold"), true)), expected);
    let held = snapshot(&[SOURCE], &Value::Null);
    assert_eq!(prepare(&held, None, false), None);
    assert!(prepare(&held, None, true).is_some());
    let mut deleted = new;
    deleted.metadata.deleting = true;
    assert_eq!(prepare(&deleted, None, true), None);
}

#[test]
fn only_our_finalizers_go() {
    let finalizers = |of: &[&str]| {
        merged(release(&snapshot(of, &Value::Null)))["metadata"]["finalizers"].clone()
    };
    assert_eq!(finalizers(&[SOURCE, "other", BOUND]), json!(["other"]));
    assert_eq!(finalizers(&[SOURCE]), Value::Null);
    assert!(release(&snapshot(&[SOURCE], &Value::Null)).is_some());
    assert_eq!(release(&snapshot(&["other"], &Value::Null)), None);
}

#[test]
fn a_snapshot_shows_what_its_content_is() {
    let bound = json!({ "boundVolumeSnapshotContentName": "c", "readyToUse": false });
    assert_eq!(mirrored(&Value::Null, &Value::Null), bound);
    assert_eq!(mirrored(&bound, &Value::Null), Value::Null);
    let taken = json!({
        "snapshotHandle": "h", "creationTime": 1_000_000_000_i64, "restoreSize": 1 << 30, "readyToUse": true,
    });
    let expected = json!({
        "creationTime": "1970-01-01T00:00:01Z", "restoreSize": "1Gi", "readyToUse": true,
    });
    assert_eq!(mirrored(&bound, &taken), expected);
    let unsized_ = json!({
        "boundVolumeSnapshotContentName": "c", "readyToUse": true,
        "creationTime": "1970-01-01T00:00:01Z", "restoreSize": "0",
    });
    assert_eq!(mirrored(&unsized_, &taken), json!({ "restoreSize": "1Gi" }));
}

#[test]
fn errors_come_and_go_with_those_of_the_content() {
    let bound = json!({ "boundVolumeSnapshotContentName": "c", "readyToUse": false });
    let failed =
        json!({ "readyToUse": false, "error": { "message": "m", "time": "1970-01-01T00:00:01Z" } });
    let shown = mirrored(&bound, &failed);
    assert_eq!(shown, json!({ "error": failed["error"] }));
    let mut showing = bound.clone();
    showing["error"] = failed["error"].clone();
    assert_eq!(mirrored(&showing, &failed), Value::Null);
    assert_eq!(mirrored(&showing, &Value::Null), json!({ "error": null }));
}

#[test]
fn an_error_is_said_once() {
    let now = Timestamp::UNIX_EPOCH;
    let said = json!({ "error": { "message": "m" } });
    assert_eq!(error(&snapshot(&[], &said), "m", true, now), None);
    let expected = json!({ "message": "n", "time": "1970-01-01T00:00:00Z" });
    let usable = merged(error(&snapshot(&[], &said), "n", false, now));
    assert_eq!(usable["status"], json!({ "error": expected }));
    let unusable = merged(error(&snapshot(&[], &said), "n", true, now));
    assert_eq!(unusable["status"], json!({ "error": expected, "readyToUse": false }));
}
