//! Group snapshots, which are not served.

use wharf_cli::{FlagSet, Gate, Stage};

/// Serves group snapshots upstream.
pub(super) const GROUPS: Gate = Gate::new("CSIVolumeGroupSnapshot", Stage::Beta, false).fixed();

/// Declares the switch that earlier releases had in place of the gate.
pub(super) fn register(set: &mut FlagSet) {
    set.bool(
        "enable-volume-group-snapshots",
        false,
        "Of an earlier release. Ignored: group snapshots are not served here.",
    );
}
