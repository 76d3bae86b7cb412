use std::time::Duration;

use wharf_cli::{Flag, FlagError, FlagSet, Parsed};

use super::super::flags::{Common, NodeFlag};

/// Flags about a driver that runs on each node and serves that alone.
pub(super) struct NodeFlags {
    node: NodeFlag,
    immediate_binding: Flag<bool>,
    delays: [Flag<Duration>; 2],
}

impl NodeFlags {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        let part = "Of distributed immediate binding, which is not supported.";
        Self {
            node: NodeFlag::register(set),
            immediate_binding: set.bool(
                "node-deployment-immediate-binding",
                true,
                "Not supported: claims that do not wait for their first consumer are left alone on nodes.",
            ),
            delays: [
                set.duration("node-deployment-base-delay", Duration::from_secs(20), part),
                set.duration("node-deployment-max-delay", Duration::from_secs(60), part),
            ],
        }
    }

    /// The node that is served alone.
    pub(super) fn name(
        &self,
        parsed: &Parsed,
        common: &Common,
    ) -> Result<Option<String>, FlagError> {
        let name = self.node.name(parsed, common)?;
        let asked = parsed.is_set(&self.immediate_binding) && *parsed.get(&self.immediate_binding);
        let timed = self.delays.iter().find(|delay| parsed.is_set(*delay)).map(Flag::name);
        let flag = timed.or(asked.then_some(self.immediate_binding.name()));
        match flag.filter(|_| name.is_some()) {
            None => Ok(name),
            Some(flag) => Err(parsed.usage_error(format_args!(
                "--{flag}: distributed immediate binding is not supported; use StorageClasses with volumeBindingMode \
                 WaitForFirstConsumer"
            ))),
        }
    }
}
