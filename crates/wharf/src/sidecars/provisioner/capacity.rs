use std::time::Duration;

use wharf_cli::{Flag, FlagError, FlagSet, Parsed};
use wharf_cluster::Throttle;
use wharf_sidecars::provisioner::{CapacityOptions, OwnerOptions};

use super::super::flags::{variable, workers};

/// Flags of CSIStorageCapacity objects, which the scheduler reads.
pub(super) struct CapacityFlags {
    enabled: Flag<bool>,
    threads: Flag<u64>,
    poll_interval: Flag<Duration>,
    ownerref_level: Flag<i64>,
    immediate: Flag<bool>,
    qps: Flag<f64>,
    burst: Flag<i64>,
}

/// The values of [`CapacityFlags`].
pub(super) struct CapacityPlan {
    pub(super) options: CapacityOptions,
    /// `None`: the controller's other requests and these share one client.
    pub(super) throttle: Option<Throttle>,
}

impl CapacityFlags {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        Self {
            enabled: set.bool(
                "enable-capacity",
                false,
                "Publish the CSI driver's free capacity as CSIStorageCapacity objects, for the scheduler.",
            ),
            threads: set.uint("capacity-threads", 1, "Workers that write CSIStorageCapacity objects."),
            poll_interval: set.duration(
                "capacity-poll-interval",
                Duration::from_mins(1),
                "Interval of GetCapacity calls to the CSI driver.",
            ),
            ownerref_level: set.int(
                "capacity-ownerref-level",
                1,
                "Owner of CSIStorageCapacity objects, counted from the pod named by POD_NAME and NAMESPACE. -1: none, \
                 0: the pod, 1: its StatefulSet or DaemonSet, 2: its Deployment.",
            ),
            immediate: set.bool(
                "capacity-for-immediate-binding",
                false,
                "Publish capacity also for StorageClasses with volumeBindingMode Immediate.",
            ),
            qps: set.float(
                "kube-api-capacity-qps",
                1.0,
                "Average limit of requests for CSIStorageCapacity objects per second. Unless this flag or \
                 --kube-api-capacity-burst is set, the limits of all requests apply.",
            ),
            burst: set.int(
                "kube-api-capacity-burst",
                5,
                "Requests for CSIStorageCapacity objects that may exceed --kube-api-capacity-qps for a moment.",
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
