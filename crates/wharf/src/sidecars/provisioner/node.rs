use std::time::Duration;

use wharf_cli::{FlagError, FlagSet, Parsed};

use super::super::flags::{Common, NodeFlag};

/// Flags for a driver that runs on each node and serves that node alone.
pub(super) struct NodeFlags(NodeFlag);

impl NodeFlags {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        let help = "Ignored: with --node-deployment, claims with immediate binding are not served.";
        set.bool("node-deployment-immediate-binding", true, help);
        set.duration("node-deployment-base-delay", Duration::from_secs(20), help);
        set.duration("node-deployment-max-delay", Duration::from_secs(60), help);
        Self(NodeFlag::register(set))
    }

    /// The only node to serve; `None` without `--node-deployment`.
    pub(super) fn name(
        &self,
        parsed: &Parsed,
        common: &Common,
    ) -> Result<Option<String>, FlagError> {
        self.0.name(parsed, common)
    }
}
