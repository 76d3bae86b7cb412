//! Flags that several sidecars have: number of workers, retries, the node, the API server's URL.

use std::time::Duration;

use wharf_cli::{Flag, FlagError, FlagSet, FlagValue, Parsed};
use wharf_cluster::Access;
use wharf_reconcile::Backoff;

use super::Common;

/// `--retry-interval-start` and `--retry-interval-max`.
pub(in crate::sidecars) struct RetryFlags {
    start: Flag<Duration>,
    max: Flag<Duration>,
}

impl RetryFlags {
    pub(in crate::sidecars) fn register(set: &mut FlagSet) -> Self {
        Self {
            start: set.duration(
                "retry-interval-start",
                Duration::from_secs(1),
                "Pause after a first failure. It doubles with each further failure.",
            ),
            max: set.duration(
                "retry-interval-max",
                Duration::from_mins(5),
                "The longest pause after a failure, and the pause after a request that the CSI driver reports as infeasible.",
            ),
        }
    }

    pub(in crate::sidecars) fn backoff(&self, parsed: &Parsed) -> Backoff {
        Backoff { first: *parsed.get(&self.start), max: *parsed.get(&self.max) }
    }
}

/// Reads a number of workers, which must be greater than 0.
pub(in crate::sidecars) fn workers<T>(parsed: &Parsed, flag: &Flag<T>) -> Result<usize, FlagError>
where
    T: FlagValue + Copy,
    usize: TryFrom<T>,
{
    let count = usize::try_from(*parsed.get(flag)).ok().filter(|count| *count > 0);
    count
        .ok_or_else(|| parsed.usage_error(format_args!("--{} must be greater than 0", flag.name())))
}

/// `--node-deployment`, for drivers that run on each node and serve that node alone.
pub(in crate::sidecars) struct NodeFlag(Flag<bool>);

impl NodeFlag {
    pub(in crate::sidecars) fn register(set: &mut FlagSet) -> Self {
        Self(set.bool(
            "node-deployment",
            false,
            "Serve only the node named by NODE_NAME, for CSI drivers that run on each node.",
        ))
    }

    /// The only node to serve; `None` without the flag.
    pub(in crate::sidecars) fn name(
        &self,
        parsed: &Parsed,
        common: &Common,
    ) -> Result<Option<String>, FlagError> {
        if !*parsed.get(&self.0) {
            return Ok(None);
        }
        if common.election.is_some() {
            return Err(parsed.usage_error(
                "--leader-election cannot be set with --node-deployment: each node has a sidecar of its own",
            ));
        }
        variable("NODE_NAME").map(Some).ok_or_else(|| {
            parsed.usage_error("--node-deployment needs the node's name in the variable NODE_NAME")
        })
    }
}

/// `--master`, which some sidecars have.
pub(in crate::sidecars) struct MasterFlag(Flag<String>);

impl MasterFlag {
    pub(in crate::sidecars) fn register(set: &mut FlagSet) -> Self {
        Self(set.string(
            "master",
            "",
            "URL of the API server. It replaces the URL in the kubeconfig.",
        ))
    }

    /// `access` with the URL of the flag, if it is set.
    pub(in crate::sidecars) fn access(
        &self,
        parsed: &Parsed,
        access: Access,
    ) -> Result<Access, FlagError> {
        match parsed.get(&self.0).as_str() {
            "" => Ok(access),
            server => {
                let access = access.at(server);
                access.map_err(|error| parsed.usage_error(format_args!("--master: {error}")))
            }
        }
    }
}

/// An environment variable; `None` if it is unset or empty.
pub(in crate::sidecars) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
