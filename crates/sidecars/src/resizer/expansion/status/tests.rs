use super::*;
use crate::resizer::expansion::target::NODE_INFEASIBLE;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn claim(status: &Value, annotated: bool) -> PersistentVolumeClaim {
    let key = annotation::NODE_EXPANSION_NOT_REQUIRED;
    let annotations = if annotated { json!({ key: "true" }) } else { json!({}) };
    let metadata = json!({ "uid": "u", "resourceVersion": "7", "annotations": annotations });
    serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
}

fn conditions(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({ "type": kind, "status": "True" })).collect()
}

fn body(patch: Patch) -> Value {
    match patch {
        Patch::Strategic(body) | Patch::Merge(body) => body,
        Patch::Json(_) => panic!("{patch:?}"),
    }
}

/// The conditions that a patch sets, and those that it removes.
fn kinds(body: &Value) -> (Vec<&str>, Vec<&str>) {
    let conditions = body["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let (gone, set): (Vec<&Value>, Vec<&Value>) =
        conditions.iter().partition(|it| it["$patch"] == "delete");
    (
        set.iter().filter_map(|it| it["type"].as_str()).collect(),
        gone.iter().filter_map(|it| it["type"].as_str()).collect(),
    )
}

#[test]
fn a_growth_that_begins_leaves_no_old_conditions_of_its_own() {
    let status = json!({ "conditions": conditions(&["Other", CONTROLLER_ERROR, RESIZING]) });
    let body = body(in_progress(&claim(&status, true), Size(1 << 30), NOW).unwrap());
    assert_eq!(kinds(&body), (vec![RESIZING], vec![CONTROLLER_ERROR]));
    let metadata = &body["metadata"];
    assert_eq!((&metadata["uid"], &metadata["resourceVersion"]), (&json!("u"), &json!("7")));
    assert_eq!(metadata["annotations"], json!({ annotation::NODE_EXPANSION_NOT_REQUIRED: null }));
    let status = &body["status"];
    assert_eq!(status["allocatedResources"], json!({ "storage": "1Gi" }));
    assert_eq!(status["allocatedResourceStatuses"], json!({ "storage": CONTROLLER_IN_PROGRESS }));
    assert_eq!(status["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:00Z");
}

#[test]
fn a_growth_that_goes_on_is_written_once() {
    let status = |kinds: &[&str]| json!({ "allocatedResources": { "storage": "1Gi" }, "conditions": conditions(kinds) });
    let size = Size(1 << 30);
    assert_eq!(in_progress(&claim(&status(&[RESIZING]), false), size, NOW), None);
    assert!(in_progress(&claim(&status(&[RESIZING]), true), size, NOW).is_some());
    let patch = in_progress(&claim(&status(&[CONTROLLER_ERROR]), false), size, NOW).unwrap();
    let body = body(patch);
    assert_eq!(kinds(&body), (vec![RESIZING], vec![]));
    assert_eq!(body["status"]["allocatedResourceStatuses"], Value::Null);
}

#[test]
fn what_the_node_has_to_do_is_added_to_what_was_done() {
    let status = json!({ "conditions": conditions(&[RESIZING]) });
    let body = body(node_pending(&claim(&status, false), Size(1 << 30), NOW).unwrap());
    assert_eq!(kinds(&body), (vec![FILESYSTEM_PENDING], vec![]));
    assert_eq!(body["status"]["allocatedResourceStatuses"], json!({ "storage": NODE_PENDING }));
}

#[test]
fn a_node_that_knows_or_has_followed_is_not_told_again() {
    let is_told = |capacity: &str, status: Option<&str>| {
        let status = status.map_or(json!({}), |status| json!({ "storage": status }));
        let status =
            json!({ "capacity": { "storage": capacity }, "allocatedResourceStatuses": status });
        node_pending(&claim(&status, false), Size(2 << 30), NOW).is_some()
    };
    for capacity in ["2Gi", "3Gi"] {
        assert!(!is_told(capacity, None) && !is_told(capacity, Some("")));
        assert!(is_told(capacity, Some(CONTROLLER_IN_PROGRESS)));
    }
    for known in [NODE_PENDING, NODE_IN_PROGRESS] {
        assert!(!is_told("1Gi", Some(known)) && !is_told("2Gi", Some(known)));
    }
    for due in [None, Some(CONTROLLER_IN_PROGRESS), Some(NODE_INFEASIBLE)] {
        assert!(is_told("1Gi", due), "{due:?}");
    }
}

#[test]
fn what_is_finished_leaves_no_trace() {
    let status = json!({ "conditions": conditions(&["Other", RESIZING, NODE_ERROR]) });
    let body_of = |status: &Value| body(finished(&claim(status, false), Size(2 << 30)));
    let done = body_of(&status);
    assert_eq!(kinds(&done), (vec![], vec![RESIZING, NODE_ERROR]));
    assert_eq!(done["status"]["capacity"], json!({ "storage": "2Gi" }));
    assert_eq!(done["status"]["allocatedResourceStatuses"], json!({ "storage": null }));
    assert_eq!(body_of(&json!({}))["status"]["conditions"], Value::Null);
}

#[test]
fn a_refusal_is_written_whatever_happened_meanwhile() {
    let final_only = body(failed(&claim(&json!({}), false), "no", false, NOW));
    assert_eq!(final_only["metadata"], json!({ "uid": "u" }));
    assert_eq!(final_only["status"]["conditions"][0]["message"], "failed to expand pvc with no");
    assert_eq!(final_only["status"]["allocatedResourceStatuses"], Value::Null);
    let infeasible = body(failed(&claim(&json!({}), false), "no", true, NOW));
    let statuses = json!({ "storage": CONTROLLER_INFEASIBLE });
    assert_eq!(infeasible["status"]["allocatedResourceStatuses"], statuses);
}

#[test]
fn the_size_before_is_noted_once() {
    let mut volume = PersistentVolume::default();
    let annotations = |volume: &PersistentVolume, before| {
        body(capacity(volume, Size(2), before))["metadata"]["annotations"].clone()
    };
    let key = annotation::PRE_RESIZE_CAPACITY;
    assert_eq!(annotations(&volume, Some(Size(1 << 20))), json!({ key: "1Mi" }));
    assert_eq!(annotations(&volume, None), Value::Null);
    volume.metadata.annotations = [(key, "1Ki")].into_iter().collect();
    assert_eq!(annotations(&volume, Some(Size(1 << 20))), Value::Null);
    assert_eq!(body(settled(&volume))["metadata"]["annotations"], json!({ key: null }));
}
