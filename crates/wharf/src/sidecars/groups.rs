//! Flags and gates of group snapshots, which are not built.

use wharf_cli::{FlagSet, Gate, Stage};

/// Turns group snapshots on in upstream's programs.
pub(super) const GROUPS: Gate = Gate::new("CSIVolumeGroupSnapshot", Stage::Beta, false).fixed();

/// Declares the switch that upstream's earlier releases had in place of the gate.
pub(super) fn register(set: &mut FlagSet) {
    set.bool(
        "enable-volume-group-snapshots",
        false,
        "Flag of an earlier release. Ignored: group snapshots are not built.",
    );
}
