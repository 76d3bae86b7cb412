use wharf_cluster::PersistentVolumeClaim;

use crate::resizer::status::has;

pub(super) const PENDING: &str = "Pending";
pub(super) const IN_PROGRESS: &str = "InProgress";
pub(super) const INFEASIBLE: &str = "Infeasible";
pub(super) const MODIFYING: &str = "ModifyingVolume";

/// The next step for a claim's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// Nothing to do.
    Nothing,
    /// The request was withdrawn before the driver was called.
    Cancel,
    /// Finish the class in progress, whatever is requested by now.
    GoOn(&'a str),
    /// Apply this class.
    Begin(&'a str),
}

/// The next step. `settled`: the driver is known not to work on the class in progress; a process
/// that has just started does not know.
pub(super) fn next(claim: &PersistentVolumeClaim, settled: bool) -> Step<'_> {
    let wished = wished(claim);
    let status = claim.status.modify_volume_status.as_deref();
    let current = claim.status.current_volume_attributes_class_name.as_deref().unwrap_or_default();
    if status.is_none() && wished == current {
        return Step::Nothing;
    }
    match status.filter(|status| status.status == IN_PROGRESS) {
        Some(begun) if !settled || wished.is_empty() => {
            Step::GoOn(&begun.target_volume_attributes_class_name)
        }
        Some(_) => Step::Begin(wished),
        None if !wished.is_empty() => Step::Begin(wished),
        None if has(claim, MODIFYING) => Step::Cancel,
        None => Step::Nothing,
    }
}

/// Whether the requested class is the current one.
pub(super) fn is_same_wish(claim: &PersistentVolumeClaim) -> bool {
    let status = claim.status.modify_volume_status.as_deref();
    status.is_some_and(|status| status.target_volume_attributes_class_name == wished(claim))
}

/// The class that a claim requests; empty for none.
pub(super) fn wished(claim: &PersistentVolumeClaim) -> &str {
    claim.spec.volume_attributes_class_name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(
        wished: &str,
        current: &str,
        status: &[&str],
        modifying: bool,
    ) -> PersistentVolumeClaim {
        let name = |name: &str| if name.is_empty() { Value::Null } else { json!(name) };
        let status = match status {
            [status, target] => {
                json!({ "status": status, "targetVolumeAttributesClassName": target })
            }
            _ => Value::Null,
        };
        let conditions = match modifying {
            true => json!([{ "type": MODIFYING, "status": "True" }]),
            false => json!([]),
        };
        serde_json::from_value(json!({
            "spec": { "volumeAttributesClassName": name(wished) },
            "status": {
                "currentVolumeAttributesClassName": name(current),
                "modifyVolumeStatus": status,
                "conditions": conditions,
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_change_is_begun_finished_or_cancelled() {
        let in_progress = [IN_PROGRESS, "gold"];
        let infeasible = [INFEASIBLE, "gold"];
        let pending = [PENDING, ""];
        let none: &[&str] = &[];
        for (wished, current, status, modifying, settled, expected) in [
            ("", "", none, false, false, Step::Nothing),
            ("gold", "gold", none, false, false, Step::Nothing),
            ("gold", "", none, false, false, Step::Begin("gold")),
            ("gold", "silver", none, false, false, Step::Begin("gold")),
            ("", "silver", none, false, false, Step::Nothing),
            ("gold", "silver", &pending, false, false, Step::Begin("gold")),
            ("gold", "silver", &in_progress, true, false, Step::GoOn("gold")),
            ("bronze", "silver", &in_progress, true, false, Step::GoOn("gold")),
            ("bronze", "silver", &in_progress, true, true, Step::Begin("bronze")),
            ("silver", "silver", &in_progress, true, true, Step::Begin("silver")),
            ("", "silver", &in_progress, true, true, Step::GoOn("gold")),
            ("gold", "silver", &infeasible, true, false, Step::Begin("gold")),
            ("silver", "silver", &infeasible, true, false, Step::Begin("silver")),
            ("", "", &infeasible, true, false, Step::Cancel),
            ("", "", &infeasible, false, false, Step::Nothing),
            ("", "", &pending, false, false, Step::Nothing),
        ] {
            let claim = claim(wished, current, status, modifying);
            let row = (wished, current, status, modifying, settled);
            assert_eq!(next(&claim, settled), expected, "{row:?}");
        }
    }

    #[test]
    fn a_new_wish_may_come_true_at_once() {
        assert!(is_same_wish(&claim("gold", "", &[INFEASIBLE, "gold"], true)));
        assert!(!is_same_wish(&claim("silver", "", &[INFEASIBLE, "gold"], true)));
        assert!(!is_same_wish(&claim("gold", "", &[], false)));
    }
}
