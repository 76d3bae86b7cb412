//! Checks that the protocol can express a change.

use std::collections::BTreeMap;

use tonic::Status;
use wharf_proto::hooks::Removals;

use crate::Env;

/// A change that the protocol cannot express. The text names the field and never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}")]
pub struct AdjustmentError {
    /// The setter's name, with the key of a map.
    pub field: String,
    /// The accepted values.
    pub expected: &'static str,
}

impl From<AdjustmentError> for Status {
    fn from(error: AdjustmentError) -> Self {
        Self::internal(format!("the hook's adjustment cannot be sent: {error}"))
    }
}

/// The highest CPU or memory node, far beyond Linux' limits. It bounds the length of a list, too.
const HIGHEST: u32 = 65_535;

pub(super) fn amount(field: &str, amount: Option<u64>) -> Result<(), AdjustmentError> {
    ensure(
        amount.is_none_or(|amount| (1..=i64::MAX.unsigned_abs()).contains(&amount)),
        field,
        "1 to 2^63 - 1: an answer cannot tell 0 from no change",
    )
}

pub(super) fn quota(quota: Option<i64>) -> Result<(), AdjustmentError> {
    let expected = "microseconds, or -1 for no limit: an answer cannot tell 0 from no change";
    ensure(quota.is_none_or(|quota| quota == -1 || quota > 0), "cpu_quota", expected)
}

pub(super) fn oom_score_adj(score: Option<i64>) -> Result<(), AdjustmentError> {
    ensure(
        score.is_none_or(|score| score != 0 && (-1000..=1000).contains(&score)),
        "oom_score_adj",
        "-1000 to 1000, and not 0: an answer cannot tell it from no change",
    )
}

/// Checks a list of CPUs or memory nodes; an empty one clears the field.
pub(super) fn list(field: &str, list: Option<&str>) -> Result<(), AdjustmentError> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number: &u32| digits && *number <= HIGHEST)
    };
    let part = |part: &str| match part.split_once('-') {
        Some((first, last)) => {
            number(first).zip(number(last)).is_some_and(|(first, last)| first <= last)
        }
        None => number(part).is_some(),
    };
    let sound = list.is_none_or(|list| list.is_empty() || list.split(',').all(part));
    ensure(sound, field, "a list of numbers and ranges such as 0-3,7, or nothing to clear it")
}

pub(super) fn keys(field: &str, map: &BTreeMap<String, String>) -> Result<(), AdjustmentError> {
    ensure(map.keys().all(|key| !key.is_empty()), field, "keys that are not empty")
}

/// Checks removed keys.
pub(super) fn removals(removals: &Removals) -> Result<(), AdjustmentError> {
    let Removals { labels, annotations, envs, .. } = removals;
    for (field, keys) in [("labels", labels), ("annotations", annotations), ("env", envs)] {
        ensure(keys.iter().all(|key| !key.is_empty()), field, "keys that are not empty")?;
    }
    Ok(())
}

pub(super) fn env(env: &Env) -> Result<(), AdjustmentError> {
    env.iter().try_for_each(|(name, value)| {
        let name_sound = !name.is_empty() && !name.contains(['=', '\0']);
        ensure(name_sound, "env", "names that are not empty and hold no = and no NUL")?;
        ensure(!value.contains('\0'), &format!("env[{name}]"), "a value without NUL")
    })
}

pub(super) fn cgroup_parent(path: Option<&str>) -> Result<(), AdjustmentError> {
    let expected = "a path: an answer cannot tell an empty one from no change";
    ensure(path.is_none_or(|path| !path.is_empty()), "cgroup_parent", expected)
}

fn ensure(sound: bool, field: &str, expected: &'static str) -> Result<(), AdjustmentError> {
    if sound { Ok(()) } else { Err(AdjustmentError { field: field.to_owned(), expected }) }
}

#[cfg(test)]
mod tests {
    use crate::adjustment::{ContainerAdjustment, PodAdjustment};

    #[test]
    fn what_cannot_be_said_is_named() {
        let new = ContainerAdjustment::new;
        for (adjustment, field) in [
            (new().cpu_shares(0), "cpu_shares"),
            (new().cpu_period(0), "cpu_period"),
            (new().memory(u64::MAX), "memory"),
            (new().memory_swap(0), "memory_swap"),
            (new().cpu_quota(0), "cpu_quota"),
            (new().cpu_quota(-2), "cpu_quota"),
            (new().oom_score_adj(0), "oom_score_adj"),
            (new().oom_score_adj(1001), "oom_score_adj"),
            (new().cpuset("0-"), "cpuset"),
            (new().cpuset("3-1"), "cpuset"),
            (new().cpuset("+1"), "cpuset"),
            (new().cpuset("0, 1"), "cpuset"),
            (new().cpuset_mems("99999999"), "cpuset_mems"),
            (new().env("A=B", "c"), "env"),
            (new().env("A", "secret\0"), "env[A]"),
            (new().annotation("", "a"), "annotations"),
            (new().unified("", "a"), "unified"),
            (new().cgroup_parent(""), "cgroup_parent"),
        ] {
            let error = adjustment.check().unwrap_err();
            assert_eq!(error.field, field);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!(PodAdjustment::new().label("", "a").check().is_err());
    }

    #[test]
    fn what_can_be_said_is_taken() {
        let adjustment = ContainerAdjustment::new()
            .cpuset("0-3,7")
            .cpuset_mems("")
            .cpu_quota(-1)
            .oom_score_adj(-999)
            .env("A", "")
            .cgroup_parent("/a");
        assert_eq!(adjustment.check(), Ok(()));
        assert_eq!(PodAdjustment::new().label("a", "").check(), Ok(()));
    }
}
