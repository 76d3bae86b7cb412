//! A hook server's file.

use std::{collections::BTreeMap, time::Duration};

use serde::{Serialize, Serializer};
use wharf_facts::hook::FailurePolicy;

use crate::HookPoint;

/// The content of a file. Koordinator's proxy reads the first three keys and ignores the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Config {
    pub(crate) remote_endpoint: String,
    #[serde(serialize_with = "name")]
    pub(crate) failure_policy: FailurePolicy,
    #[serde(serialize_with = "names")]
    pub(crate) runtime_hooks: Vec<HookPoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "go_duration")]
    pub(crate) timeout: Option<Duration>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "by_name")]
    pub(crate) failure_policies: BTreeMap<HookPoint, FailurePolicy>,
    /// How the proxy reads answers.
    pub(crate) answers: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) details: bool,
}

/// Fields that an answer leaves out are kept.
pub(crate) const PARTIAL: &str = "partial";

fn name<S: Serializer>(policy: &FailurePolicy, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(policy.name())
}

fn names<S: Serializer>(points: &[HookPoint], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(points.iter().map(|point| point.name()))
}

fn by_name<S: Serializer>(
    policies: &BTreeMap<HookPoint, FailurePolicy>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(policies.iter().map(|(point, policy)| (point.name(), policy.name())))
}

/// Writes a duration for Go's `time.ParseDuration`.
fn go_duration<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    let nanos = time.unwrap_or_default().as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
    let (unit, size) =
        units.into_iter().find(|(_, size)| nanos.is_multiple_of(*size)).unwrap_or(("ns", 1));
    to.serialize_str(&format!("{}{unit}", nanos / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_the_proxys() {
        let mut config = Config {
            remote_endpoint: "/run/a.sock".to_owned(),
            failure_policy: FailurePolicy::Ignore,
            runtime_hooks: vec![HookPoint::PreCreateContainer, HookPoint::PostStopContainer],
            order: None,
            timeout: None,
            failure_policies: BTreeMap::new(),
            answers: PARTIAL,
            details: false,
        };
        let short = r#"{"remote-endpoint":"/run/a.sock","failure-policy":"Ignore","runtime-hooks":["PreCreateContainer","PostStopContainer"]"#;
        let end = r#","answers":"partial"}"#;
        assert_eq!(serde_json::to_string(&config).unwrap(), format!("{short}{end}"));

        config.order = Some(-3);
        config.timeout = Some(Duration::from_millis(1500));
        config.failure_policies = [(HookPoint::PreCreateContainer, FailurePolicy::Fail)].into();
        let long =
            r#","order":-3,"timeout":"1500ms","failure-policies":{"PreCreateContainer":"Fail"}"#;
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(text, format!("{short}{long}{end}"));
    }
}
