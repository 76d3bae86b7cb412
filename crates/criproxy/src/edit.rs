//! The edits of hook servers: each changes one field from one value to another.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A field of a pod sandbox or container that a hook server may change. Two servers that change the
/// same field are in conflict.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Field {
    /// A label of the pod sandbox.
    Label(String),
    /// An annotation of the pod sandbox or container.
    Annotation(String),
    /// The parent cgroup of the pod's cgroups.
    CgroupParent,
    /// A number among a container's resources.
    Amount(Amount),
    /// The CPUs or memory nodes that a container may use.
    Cpuset(Cpuset),
    /// A file of cgroup v2, by its name.
    Unified(String),
    /// An environment variable.
    Env(String),
}

/// The numbers among a container's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Amount {
    CpuPeriod,
    CpuQuota,
    CpuShares,
    MemoryLimit,
    MemorySwapLimit,
    OomScoreAdj,
}

/// The two sets of a cpuset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Cpuset {
    Cpus,
    Mems,
}

/// The value of a field. Absent texts are empty and absent numbers zero, but an environment
/// variable or a key of a map may be present and empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Value {
    Absent,
    Number(i64),
    Text(String),
}

/// A change that a hook server asks for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Edit {
    pub(crate) field: Field,
    pub(crate) from: Value,
    pub(crate) to: Value,
}

impl Value {
    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Absent | Value::Number(_) => None,
        }
    }

    /// The number; an absent one is zero.
    pub(crate) fn number(&self) -> i64 {
        match self {
            Value::Number(number) => *number,
            Value::Absent | Value::Text(_) => 0,
        }
    }
}

impl From<Option<&String>> for Value {
    fn from(text: Option<&String>) -> Self {
        text.map_or(Self::Absent, |text| Self::Text(text.clone()))
    }
}

impl fmt::Debug for Edit {
    /// Values of the environment and of annotations may be secrets: shows only whether they are
    /// present.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Value| match (&self.field, value) {
            (Field::Env(_) | Field::Annotation(_), Value::Text(_)) => Value::Text("***".to_owned()),
            _ => value.clone(),
        };
        write!(f, "{}: {:?} -> {:?}", self.field, shown(&self.from), shown(&self.to))
    }
}

impl fmt::Display for Field {
    /// The names of CRI, so that an audit can be compared with a request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Label(key) => write!(f, "labels[{key}]"),
            Field::Annotation(key) => write!(f, "annotations[{key}]"),
            Field::CgroupParent => write!(f, "cgroup_parent"),
            Field::Amount(amount) => f.write_str(match amount {
                Amount::CpuPeriod => "cpu_period",
                Amount::CpuQuota => "cpu_quota",
                Amount::CpuShares => "cpu_shares",
                Amount::MemoryLimit => "memory_limit_in_bytes",
                Amount::MemorySwapLimit => "memory_swap_limit_in_bytes",
                Amount::OomScoreAdj => "oom_score_adj",
            }),
            Field::Cpuset(Cpuset::Cpus) => write!(f, "cpuset_cpus"),
            Field::Cpuset(Cpuset::Mems) => write!(f, "cpuset_mems"),
            Field::Unified(key) => write!(f, "unified[{key}]"),
            Field::Env(key) => write!(f, "envs[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_named_and_its_value_is_not_told() {
        let from = Value::Text("s3cret".to_owned());
        let edit = Edit { field: Field::Env("TOKEN".to_owned()), from, to: Value::Absent };
        assert_eq!(format!("{edit:?}"), r#"envs[TOKEN]: Text("***") -> Absent"#);
        let from = Value::Number(1);
        let edit = Edit { field: Field::Amount(Amount::CpuShares), from, to: Value::Number(2) };
        assert_eq!(format!("{edit:?}"), "cpu_shares: Number(1) -> Number(2)");
    }
}
