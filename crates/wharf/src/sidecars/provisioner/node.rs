use std::time::Duration;

use wharf_cli::{Flag, FlagError, FlagSet, Parsed};

use super::variable;

/// Flags about a driver that runs on each node and serves that alone.
pub(super) struct NodeFlags {
    enabled: Flag<bool>,
    immediate_binding: Flag<bool>,
}

impl NodeFlags {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        let flags = Self {
            enabled: set.bool(
                "node-deployment",
                false,
                "Serve only the node named by NODE_NAME, for drivers that make volumes on each node.",
            ),
            immediate_binding: set.bool(
                "node-deployment-immediate-binding",
                true,
                "Not supported: claims that do not wait for their first consumer are left alone on nodes.",
            ),
        };
        let part = "Of distributed immediate binding, which is not supported.";
        set.duration("node-deployment-base-delay", Duration::from_secs(20), part);
        set.duration("node-deployment-max-delay", Duration::from_secs(60), part);
        flags
    }

    /// The node that is served alone.
    pub(super) fn name(&self, parsed: &Parsed) -> Result<Option<String>, FlagError> {
        if !*parsed.get(&self.enabled) {
            return Ok(None);
        }
        if parsed.is_set(&self.immediate_binding) && *parsed.get(&self.immediate_binding) {
            return Err(parsed.usage_error(
                "--node-deployment-immediate-binding=true: distributed immediate binding is not supported; use \
                 StorageClasses with volumeBindingMode WaitForFirstConsumer",
            ));
        }
        variable("NODE_NAME").map(Some).ok_or_else(|| {
            parsed.usage_error("--node-deployment needs the node's name in the variable NODE_NAME")
        })
    }
}
