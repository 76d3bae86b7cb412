//! Changes of a container's resources.

use std::collections::BTreeMap;

use wharf_proto::hooks::{HugepageLimit, LinuxContainerResources, Removals};

use super::check::{self, AdjustmentError};
use crate::Resources;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceChanges {
    pub(super) cpu_period: Option<u64>,
    pub(super) cpu_quota: Option<i64>,
    pub(super) cpu_shares: Option<u64>,
    pub(super) memory: Option<u64>,
    pub(super) memory_swap: Option<u64>,
    pub(super) oom_score_adj: Option<i64>,
    pub(super) cpuset_cpus: Option<String>,
    pub(super) cpuset_mems: Option<String>,
    pub(super) unified: BTreeMap<String, String>,
}

impl ResourceChanges {
    /// The answer for a container with the resources `sent`: `None` without changes, otherwise
    /// every field, since an answer clears the cpusets and the OOM score that it leaves out.
    pub(super) fn over(self, sent: &Resources) -> Option<LinuxContainerResources> {
        if self == Self::default() {
            return None;
        }
        let mut wire = echo(sent);
        let numbers = [
            (&mut wire.cpu_period, self.cpu_period.map(number)),
            (&mut wire.cpu_quota, self.cpu_quota),
            (&mut wire.cpu_shares, self.cpu_shares.map(number)),
            (&mut wire.memory_limit_in_bytes, self.memory.map(number)),
            (&mut wire.memory_swap_limit_in_bytes, self.memory_swap.map(number)),
            (&mut wire.oom_score_adj, self.oom_score_adj),
        ];
        for (field, change) in numbers {
            *field = change.unwrap_or(*field);
        }
        let lists =
            [(&mut wire.cpuset_cpus, self.cpuset_cpus), (&mut wire.cpuset_mems, self.cpuset_mems)];
        for (field, change) in lists {
            if let Some(list) = change {
                *field = list;
            }
        }
        wire.unified.extend(self.unified);
        Some(wire)
    }

    /// Removals, with the cpusets that are cleared: in a partial answer an empty text means no
    /// change.
    pub(super) fn removals(&self, removals: Removals) -> Removals {
        let is_cleared = |list: &Option<String>| list.as_deref() == Some("");
        Removals {
            cpuset_cpus: is_cleared(&self.cpuset_cpus),
            cpuset_mems: is_cleared(&self.cpuset_mems),
            ..removals
        }
    }

    /// Adds later changes.
    pub(super) fn extend(&mut self, later: Self) {
        self.unified.extend(later.unified);
        *self = Self {
            cpu_period: later.cpu_period.or(self.cpu_period),
            cpu_quota: later.cpu_quota.or(self.cpu_quota),
            cpu_shares: later.cpu_shares.or(self.cpu_shares),
            memory: later.memory.or(self.memory),
            memory_swap: later.memory_swap.or(self.memory_swap),
            oom_score_adj: later.oom_score_adj.or(self.oom_score_adj),
            cpuset_cpus: later.cpuset_cpus.or(self.cpuset_cpus.take()),
            cpuset_mems: later.cpuset_mems.or(self.cpuset_mems.take()),
            unified: std::mem::take(&mut self.unified),
        };
    }

    pub(super) fn check(&self) -> Result<(), AdjustmentError> {
        check::amount("cpu_period", self.cpu_period)?;
        check::amount("cpu_shares", self.cpu_shares)?;
        check::amount("memory", self.memory)?;
        check::amount("memory_swap", self.memory_swap)?;
        check::quota(self.cpu_quota)?;
        check::oom_score_adj(self.oom_score_adj)?;
        check::list("cpuset", self.cpuset_cpus.as_deref())?;
        check::list("cpuset_mems", self.cpuset_mems.as_deref())?;
        check::keys("unified", &self.unified)
    }
}

fn echo(sent: &Resources) -> LinuxContainerResources {
    let pages = sent.hugepage_limits.iter();
    LinuxContainerResources {
        cpu_period: sent.cpu_period,
        cpu_quota: sent.cpu_quota,
        cpu_shares: sent.cpu_shares,
        memory_limit_in_bytes: sent.memory_limit,
        memory_swap_limit_in_bytes: sent.memory_swap_limit,
        oom_score_adj: sent.oom_score_adj,
        cpuset_cpus: sent.cpuset_cpus.clone(),
        cpuset_mems: sent.cpuset_mems.clone(),
        hugepage_limits: pages
            .map(|(size, limit)| HugepageLimit { page_size: size.clone(), limit: *limit })
            .collect(),
        unified: sent.unified.clone(),
    }
}

/// Larger amounts were rejected by the check.
fn number(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// The setters of both adjustments with resources.
macro_rules! resource_setters {
    () => {
        /// CPUs that the container may use, as a list such as `0-3,7`; empty for all.
        pub fn cpuset(mut self, cpus: impl Into<String>) -> Self {
            self.resources.cpuset_cpus = Some(cpus.into());
            self
        }

        /// Memory nodes that the container may use, as a list such as `0`; empty for all.
        pub fn cpuset_mems(mut self, nodes: impl Into<String>) -> Self {
            self.resources.cpuset_mems = Some(nodes.into());
            self
        }

        /// The relative weight: the kubelet sets 1024 for each requested CPU.
        pub fn cpu_shares(mut self, shares: u64) -> Self {
            self.resources.cpu_shares = Some(shares);
            self
        }

        /// CPU time in each period, in microseconds; -1 removes the limit.
        pub fn cpu_quota(mut self, micros: i64) -> Self {
            self.resources.cpu_quota = Some(micros);
            self
        }

        /// The length of a period, in microseconds.
        pub fn cpu_period(mut self, micros: u64) -> Self {
            self.resources.cpu_period = Some(micros);
            self
        }

        /// The limit of memory, in bytes.
        pub fn memory(mut self, bytes: u64) -> Self {
            self.resources.memory = Some(bytes);
            self
        }

        /// The limit of memory and swap together, in bytes.
        pub fn memory_swap(mut self, bytes: u64) -> Self {
            self.resources.memory_swap = Some(bytes);
            self
        }

        /// From -1000, never killed when memory runs out, to 1000, killed first; 0 cannot be
        /// expressed.
        pub fn oom_score_adj(mut self, score: i64) -> Self {
            self.resources.oom_score_adj = Some(score);
            self
        }

        /// Writes a file of cgroup v2, such as `memory.high`.
        pub fn unified(mut self, file: impl Into<String>, value: impl Into<String>) -> Self {
            self.resources.unified.insert(file.into(), value.into());
            self
        }
    };
}
pub(super) use resource_setters;
