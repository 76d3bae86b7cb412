//! Group snapshots, which the controllers here leave to others.

use wharf_cli::{FeatureGates, Flag, FlagError, FlagSet, Gate, Parsed, Stage};

/// Serves group snapshots: upstream unless it is told not to, here never.
pub(super) const GROUPS: Gate = Gate::new("CSIVolumeGroupSnapshot", Stage::Ga, false);

/// The flag by which earlier releases served them.
pub(super) struct GroupFlag(Flag<bool>);

impl GroupFlag {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        let name = "enable-volume-group-snapshots";
        let flag = Self(set.bool(name, false, "Of an earlier release."));
        set.deprecate(name, "group snapshots are not served here");
        flag
    }

    /// Refuses flag and gate where they were switched on. Gives whether nothing was said of the gate, which is worth a
    /// warning: upstream would serve group snapshots then.
    pub(super) fn refuse(
        &self,
        parsed: &Parsed,
        gates: &Flag<FeatureGates>,
    ) -> Result<bool, FlagError> {
        let gates = parsed.get(gates);
        if gates.enabled(&GROUPS) || *parsed.get(&self.0) {
            return Err(parsed.usage_error(
                "group snapshots are not served here: leave out --feature-gates=CSIVolumeGroupSnapshot=true and \
                 --enable-volume-group-snapshots, and run the upstream program where they are needed",
            ));
        }
        Ok(!gates.is_set(&GROUPS))
    }
}

/// Says that group snapshots are left to others.
pub(super) fn warn() {
    tracing::warn!(
        "group snapshots are not served here; --feature-gates=CSIVolumeGroupSnapshot=false says that this is known"
    );
}
