//! Builds the patches of VolumeSnapshotContents.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use wharf_cluster::{Patch, VolumeSnapshotContent};
use wharf_facts::{annotation, context, finalizer};

use super::{decide::is_being_created, request::Taken};

/// The mark if the class has no parameters; Go's snapshotter always writes this one.
const PLAIN_MARK: &str = "yes";
/// The API's limit for all annotations of an object is 256 KiB.
const LONGEST: usize = 64 << 10;

/// Marks a content before the driver is called: while the mark is there, the driver may have a
/// snapshot that is not recorded. The mark contains the parameters of the class. `None` if it is
/// there, or if the snapshot is known and only not ready.
pub(super) fn mark(
    content: &VolumeSnapshotContent,
    parameters: &BTreeMap<String, String>,
) -> Option<Patch> {
    let status = content.status.as_ref();
    let known = status.is_some_and(|status| status.snapshot_handle.is_some());
    if known || is_being_created(&content.metadata) {
        return None;
    }
    let of_class = parameters.iter().filter(|(key, _)| !is_metadata(key));
    let of_class: BTreeMap<_, _> = of_class.collect();
    let mark = match of_class.is_empty() {
        true => PLAIN_MARK.to_owned(),
        false => fitting(json!(of_class).to_string()),
    };
    Some(annotate(content, Some(&mark)))
}

/// Whether a parameter names API objects, as a flag adds them, and is not from the class.
pub(super) fn is_metadata(parameter: &str) -> bool {
    parameter.starts_with(context::PREFIX)
}

/// The parameters in the mark of a content; `None` for a mark without them, such as that of Go's
/// snapshotter.
pub(crate) fn noted_parameters(
    content: &VolumeSnapshotContent,
) -> Option<BTreeMap<String, String>> {
    let noted = content.metadata.annotations.get(annotation::SNAPSHOT_BEING_CREATED)?;
    serde_json::from_str(noted).ok()
}

/// Removes the mark. `None` if it is not there.
pub(super) fn unmark(content: &VolumeSnapshotContent) -> Option<Patch> {
    is_being_created(&content.metadata).then(|| annotate(content, None))
}

/// Removes our finalizer from a content. `None` if it is not there.
pub(super) fn release(content: &VolumeSnapshotContent) -> Option<Patch> {
    Patch::remove_finalizer(&content.metadata, finalizer::CONTENT_BOUND_PROTECTION)
}

/// Records the driver's answer. Known fields stay, except for the readiness. `None` if nothing is
/// new.
pub(super) fn taken(content: &VolumeSnapshotContent, taken: &Taken) -> Option<Patch> {
    let old = content.status.clone().unwrap_or_default();
    let mut new = Map::new();
    let mut set = |key: &str, value: Value| drop(new.insert(key.to_owned(), value));
    if old.snapshot_handle.is_none() {
        set("snapshotHandle", json!(taken.handle));
    }
    if old.creation_time.is_none() {
        set("creationTime", json!(taken.time));
    }
    if old.restore_size.is_none() && taken.size > 0 {
        set("restoreSize", json!(taken.size));
    }
    if let (None, Some(group)) = (&old.volume_group_snapshot_handle, &taken.group) {
        set("volumeGroupSnapshotHandle", json!(group));
    }
    if old.ready_to_use != Some(taken.ready) {
        set("readyToUse", json!(taken.ready));
        if taken.ready && old.error.is_some() {
            set("error", Value::Null);
        }
    }
    (!new.is_empty()).then(|| Patch::status(&content.metadata, &Value::Object(new)))
}

/// Records that the snapshot is deleted in the driver.
pub(super) fn deleted(content: &VolumeSnapshotContent) -> Patch {
    let nothing = json!({
        "snapshotHandle": null, "readyToUse": null, "creationTime": null, "restoreSize": null,
    });
    Patch::status(&content.metadata, &nothing)
}

/// Records an error. `None` if the status has it already.
pub(super) fn error(
    content: &VolumeSnapshotContent,
    message: &str,
    now: Timestamp,
) -> Option<Patch> {
    let error = content.status.as_ref().and_then(|status| status.error.as_ref());
    if error.is_some_and(|error| error.message.as_deref() == Some(message)) {
        return None;
    }
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let error = json!({ "message": message, "time": time });
    Some(Patch::status(&content.metadata, &json!({ "error": error, "readyToUse": false })))
}

/// The mark, or the plain one if it would be too long for the content.
fn fitting(mark: String) -> String {
    if mark.len() > LONGEST { PLAIN_MARK.to_owned() } else { mark }
}

fn annotate(content: &VolumeSnapshotContent, value: Option<&str>) -> Patch {
    let annotations = json!({ annotation::SNAPSHOT_BEING_CREATED: value });
    Patch::metadata(&content.metadata, json!({ "annotations": annotations }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(status: &Value) -> VolumeSnapshotContent {
        serde_json::from_value(json!({ "metadata": { "uid": "u" }, "status": status })).unwrap()
    }

    fn status(patch: Option<Patch>) -> Value {
        match patch {
            Some(Patch::Merge(body)) => body["status"].clone(),
            None => Value::Null,
            Some(patch) => panic!("{patch:?}"),
        }
    }

    fn answer(ready: bool, size: i64) -> Taken {
        Taken { handle: "h".to_owned(), time: 7, size, ready, group: None }
    }

    #[test]
    fn a_snapshot_that_is_known_needs_no_mark() {
        let mark = |status| mark(&content(&status), &BTreeMap::new());
        assert!(mark(Value::Null).is_some());
        assert!(mark(json!({ "error": {} })).is_some());
        assert_eq!(mark(json!({ "snapshotHandle": "h" })), None);
    }

    #[test]
    fn a_mark_tells_the_parameters_if_it_can() {
        let marked = |value: &str| {
            let names = (format!("{}pvc/name", context::PREFIX), "c".to_owned());
            let parameters = [("a".to_owned(), value.to_owned()), names].into();
            let Some(Patch::Merge(patch)) = mark(&content(&Value::Null), &parameters) else {
                panic!("no mark")
            };
            serde_json::from_value(json!({ "metadata": patch["metadata"] })).unwrap()
        };
        assert_eq!(noted_parameters(&marked("b")), Some([("a".to_owned(), "b".to_owned())].into()));
        let long: VolumeSnapshotContent = marked(&"b".repeat(LONGEST));
        assert!(is_being_created(&long.metadata));
        assert_eq!(noted_parameters(&long), None);
    }

    #[test]
    fn what_is_known_stays() {
        let first = status(taken(&content(&Value::Null), &answer(false, 5)));
        let expected = json!({ "snapshotHandle": "h", "creationTime": 7, "restoreSize": 5, "readyToUse": false });
        assert_eq!(first, expected);
        let known = json!({ "snapshotHandle": "g", "creationTime": 1, "readyToUse": false });
        assert_eq!(status(taken(&content(&known), &answer(false, 0))), Value::Null);
        assert_eq!(
            status(taken(&content(&known), &answer(true, 0))),
            json!({ "readyToUse": true })
        );
    }

    #[test]
    fn an_error_goes_when_the_snapshot_is_ready() {
        let failed = json!({ "snapshotHandle": "h", "creationTime": 7, "error": { "message": "m" }, "readyToUse": false });
        let ready = status(taken(&content(&failed), &answer(true, 0)));
        assert_eq!(ready, json!({ "readyToUse": true, "error": null }));
        assert_eq!(error(&content(&failed), "m", Timestamp::UNIX_EPOCH), None);
        let other = status(error(&content(&failed), "n", Timestamp::UNIX_EPOCH));
        let expected = json!({ "message": "n", "time": "1970-01-01T00:00:00Z" });
        assert_eq!(other, json!({ "error": expected, "readyToUse": false }));
    }
}
