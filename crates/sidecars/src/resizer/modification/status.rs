//! Builds the patches of claims and volumes for a modification.

use jiff::Timestamp;
use serde_json::{Value, json};
use tonic::Status;
use wharf_cluster::{Patch, PersistentVolume, PersistentVolumeClaim};
use wharf_uds::code_name;

use super::decide::{IN_PROGRESS, INFEASIBLE, MODIFYING, PENDING};
use crate::resizer::status::{guarded, time, unguarded, without};

const ERROR: &str = "ModifyVolumeError";

/// Records that the requested class is missing. `None` if the claim says so already.
pub(super) fn pending(claim: &PersistentVolumeClaim) -> Option<Patch> {
    let known = claim.status.modify_volume_status.as_ref().is_some_and(|it| it.status == PENDING);
    let status = json!({ "modifyVolumeStatus": { "status": PENDING } });
    (!known).then(|| guarded(&claim.metadata, None, &status))
}

/// Records that a modification to `target` begins.
pub(super) fn in_progress(claim: &PersistentVolumeClaim, target: &str, now: Timestamp) -> Patch {
    let message = format!("Modifying volume to {target:?} is in progress.");
    let status = json!({
        "modifyVolumeStatus": {
            "status": IN_PROGRESS,
            "targetVolumeAttributesClassName": target,
        },
        "conditions": [condition(claim, MODIFYING, None, &message, now)],
    });
    guarded(&claim.metadata, None, &status)
}

/// Records a failure; `certain`: the driver will not apply the class later without another call.
pub(super) fn failed(
    claim: &PersistentVolumeClaim,
    target: &str,
    error: &Status,
    certain: bool,
    now: Timestamp,
) -> Patch {
    let message = match certain {
        true => format!("Modifying volume to {target:?} failed. Waiting for retry."),
        false => format!("Modifying volume to {target:?} is still in progress."),
    };
    let state = if is_infeasible(error) { INFEASIBLE } else { IN_PROGRESS };
    let status = json!({
        "modifyVolumeStatus": { "status": state },
        "conditions": [
            condition(claim, MODIFYING, None, &message, now),
            condition(claim, ERROR, Some(code_name(error.code())), error.message(), now),
        ],
    });
    guarded(&claim.metadata, None, &status)
}

/// Records that the claim's volume has the attributes of `class`.
pub(super) fn completed(claim: &PersistentVolumeClaim, class: &str) -> Patch {
    let mut status =
        json!({ "modifyVolumeStatus": null, "currentVolumeAttributesClassName": class });
    let conditions: Vec<Value> = without(claim, &[MODIFYING, ERROR]).collect();
    if !conditions.is_empty() {
        status["conditions"] = Value::Array(conditions);
    }
    unguarded(&claim.metadata, &status)
}

/// Records that the request was withdrawn.
pub(super) fn cancelled(claim: &PersistentVolumeClaim) -> Patch {
    let conditions: Vec<Value> = without(claim, &[MODIFYING]).collect();
    unguarded(&claim.metadata, &json!({ "conditions": conditions }))
}

/// Records the class of the volume.
pub(super) fn class(volume: &PersistentVolume, class: &str) -> Patch {
    let metadata = json!({ "uid": volume.metadata.uid });
    let spec = json!({ "volumeAttributesClassName": class });
    Patch::Merge(json!({ "metadata": metadata, "spec": spec }))
}

/// Whether the driver reports that the class is infeasible.
pub(super) fn is_infeasible(error: &Status) -> bool {
    error.code() == tonic::Code::InvalidArgument
}

/// A new or different condition begins now.
fn condition(
    claim: &PersistentVolumeClaim,
    kind: &str,
    reason: Option<&str>,
    message: &str,
    now: Timestamp,
) -> Value {
    let mut condition = json!({
        "type": kind,
        "status": "True",
        "lastProbeTime": time(now),
        "reason": reason,
        "message": message,
    });
    let known = claim.status.conditions.iter().find(|own| own.kind == kind);
    let same =
        known.is_some_and(|own| own.status == "True" && own.reason == reason.unwrap_or_default());
    if !same {
        condition["lastTransitionTime"] = json!(time(now));
    }
    condition
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn claim(status: &Value) -> PersistentVolumeClaim {
        let metadata = json!({ "uid": "u", "resourceVersion": "7" });
        serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
    }

    fn body(patch: Patch) -> Value {
        let Patch::Strategic(body) = patch else { panic!("{patch:?}") };
        body
    }

    #[test]
    fn what_waits_for_its_class_says_so_once() {
        let patch = body(pending(&claim(&json!({}))).unwrap());
        assert_eq!(patch["status"], json!({ "modifyVolumeStatus": { "status": PENDING } }));
        assert_eq!(pending(&claim(&json!({ "modifyVolumeStatus": { "status": PENDING } }))), None);
    }

    #[test]
    fn a_condition_begins_when_it_becomes_another() {
        let known = json!({ "conditions": [
            { "type": MODIFYING, "status": "True" },
            { "type": ERROR, "status": "True", "reason": "Internal" },
        ]});
        let times = |status: &Value, error: &Status| {
            let body = body(failed(&claim(status), "gold", error, true, NOW));
            let began =
                |at: usize| body["status"]["conditions"][at]["lastTransitionTime"].is_string();
            (began(0), began(1))
        };
        assert_eq!(times(&json!({}), &Status::internal("x")), (true, true));
        assert_eq!(times(&known, &Status::internal("y")), (false, false));
        assert_eq!(times(&known, &Status::aborted("y")), (false, true));
    }

    #[test]
    fn only_an_invalid_argument_is_infeasible() {
        let state = |error: Status, certain| {
            let body = body(failed(&claim(&json!({})), "gold", &error, certain, NOW));
            let text = body["status"]["conditions"][0]["message"].as_str().unwrap().to_owned();
            (body["status"]["modifyVolumeStatus"]["status"].clone(), text)
        };
        let failed = "Modifying volume to \"gold\" failed. Waiting for retry.".to_owned();
        let goes_on = "Modifying volume to \"gold\" is still in progress.".to_owned();
        assert_eq!(state(Status::invalid_argument("x"), true), (json!(INFEASIBLE), failed.clone()));
        assert_eq!(state(Status::out_of_range("x"), true), (json!(IN_PROGRESS), failed));
        assert_eq!(state(Status::aborted("x"), false), (json!(IN_PROGRESS), goes_on));
    }

    #[test]
    fn what_is_done_leaves_no_trace() {
        let known = json!({ "conditions": [{ "type": MODIFYING }, { "type": "Other" }] });
        let patch = body(completed(&claim(&known), "gold"));
        let gone = json!([{ "$patch": "delete", "type": MODIFYING }]);
        assert_eq!(patch["status"]["conditions"], gone);
        assert_eq!(patch["status"]["currentVolumeAttributesClassName"], "gold");
        assert_eq!(patch["metadata"], json!({ "uid": "u" }));
        assert_eq!(body(cancelled(&claim(&known)))["status"], json!({ "conditions": gone }));
    }
}
