use std::time::Duration;

use wharf_cli::{Flag, FlagError, FlagSet, Parsed};
use wharf_cluster::Throttle;
use wharf_sidecars::provisioner::{CapacityOptions, OwnerOptions};

use super::super::flags::{variable, workers};

/// Flags about what the scheduler is told of capacities.
pub(super) struct CapacityFlags {
    enabled: Flag<bool>,
    threads: Flag<u64>,
    poll_interval: Flag<Duration>,
    ownerref_level: Flag<i64>,
    immediate: Flag<bool>,
    qps: Flag<f64>,
    burst: Flag<i64>,
}

/// What they ask for.
pub(super) struct CapacityPlan {
    pub(super) options: CapacityOptions,
    /// `None` where the client of all other work will do.
    pub(super) throttle: Option<Throttle>,
}

impl CapacityFlags {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        Self {
            enabled: set.bool(
                "enable-capacity",
                false,
                "Tell the scheduler how much the CSI driver can still make, as CSIStorageCapacity objects.",
            ),
            threads: set.uint("capacity-threads", 1, "How many such objects are written at once."),
            poll_interval: set.duration(
                "capacity-poll-interval",
                Duration::from_mins(1),
                "How often the CSI driver is asked what it can still make.",
            ),
            ownerref_level: set.int(
                "capacity-ownerref-level",
                1,
                "Owner of such objects, counted from the pod named by POD_NAME and NAMESPACE: -1: none, 0: the pod, \
                 1: its StatefulSet or DaemonSet, 2: its Deployment.",
            ),
            immediate: set.bool(
                "capacity-for-immediate-binding",
                false,
                "Tell of StorageClasses as well that do not wait for their first consumer.",
            ),
            qps: set.float(
                "kube-api-capacity-qps",
                1.0,
                "Requests per second to the Kubernetes API for such objects, in the long run. Where neither this nor \
                 the burst is given they are requests as all others.",
            ),
            burst: set.int(
                "kube-api-capacity-burst",
                5,
                "Requests to the Kubernetes API for such objects that may follow each other at once.",
            ),
        }
    }

    pub(super) fn plan(&self, parsed: &Parsed) -> Result<Option<CapacityPlan>, FlagError> {
        if !*parsed.get(&self.enabled) {
            return Ok(None);
        }
        let named = |name: &str, what: &str| {
            variable(name).ok_or_else(|| {
                parsed.usage_error(format_args!(
                    "--enable-capacity needs the pod's {what} in the variable {name}"
                ))
            })
        };
        let namespace = named("NAMESPACE", "namespace")?;
        let owner = match u32::try_from(*parsed.get(&self.ownerref_level)) {
            Ok(level) => Some(OwnerOptions { pod: named("POD_NAME", "name")?, level }),
            Err(_) => None,
        };
        let poll = *parsed.get(&self.poll_interval);
        if poll.is_zero() {
            return Err(parsed.usage_error("--capacity-poll-interval must be longer than 0s"));
        }
        let options = CapacityOptions {
            namespace,
            owner,
            poll,
            immediate: *parsed.get(&self.immediate),
            workers: workers(parsed, &self.threads)?,
        };
        Ok(Some(CapacityPlan { options, throttle: self.throttle(parsed)? }))
    }

    fn throttle(&self, parsed: &Parsed) -> Result<Option<Throttle>, FlagError> {
        if !parsed.is_set(&self.qps) && !parsed.is_set(&self.burst) {
            return Ok(None);
        }
        let (qps, burst) = (*parsed.get(&self.qps), *parsed.get(&self.burst));
        let throttle = u32::try_from(burst).ok().and_then(|burst| Throttle::new(qps, burst));
        throttle.map(Some).ok_or_else(|| {
            parsed.usage_error(format_args!(
                "--kube-api-capacity-qps={qps} and --kube-api-capacity-burst={burst}: expected both to be more than 0"
            ))
        })
    }
}
