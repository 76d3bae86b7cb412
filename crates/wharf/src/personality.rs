use std::{ffi::OsString, process::ExitCode};

use crate::{liveness, proxy, registrar, sidecars};

/// A Go program that this binary replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Personality {
    /// node-driver-registrar.
    Registrar,
    /// livenessprobe.
    Liveness,
    /// koord-runtime-proxy.
    RuntimeProxy,
    /// external-attacher.
    Attacher,
    /// external-resizer.
    Resizer,
    /// csi-snapshotter of external-snapshotter.
    Snapshotter,
    /// snapshot-controller of external-snapshotter.
    SnapshotController,
    /// external-provisioner.
    Provisioner,
    /// Several of the CSI sidecars in one process.
    Sidecars,
}

impl Personality {
    /// The personality for the binary's name: that of the program in upstream's image, or of
    /// upstream's repository.
    pub(crate) fn of(name: &str) -> Option<Self> {
        match name {
            "csi-node-driver-registrar" | "node-driver-registrar" => Some(Self::Registrar),
            "livenessprobe" => Some(Self::Liveness),
            "koord-runtime-proxy" => Some(Self::RuntimeProxy),
            "csi-attacher" | "external-attacher" => Some(Self::Attacher),
            "csi-resizer" | "external-resizer" => Some(Self::Resizer),
            "csi-snapshotter" | "external-snapshotter" => Some(Self::Snapshotter),
            "snapshot-controller" => Some(Self::SnapshotController),
            "csi-provisioner" | "external-provisioner" => Some(Self::Provisioner),
            "csi-sidecars" => Some(Self::Sidecars),
            _ => None,
        }
    }

    pub(crate) fn run(self, name: &str, args: Vec<OsString>) -> ExitCode {
        let args: Vec<String> =
            args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        match self {
            Self::Registrar => registrar::main(name, args),
            Self::Liveness => liveness::main(name, args),
            Self::RuntimeProxy => proxy::koord::main(name, args),
            Self::Attacher => sidecars::attacher(name, args),
            Self::Resizer => sidecars::resizer(name, args),
            Self::Snapshotter => sidecars::snapshotter(name, args),
            Self::SnapshotController => sidecars::snapshot_controller(name, args),
            Self::Sidecars => sidecars::combined(name, args),
            Self::Provisioner => sidecars::provisioner(name, args),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(Personality::of("csi-node-driver-registrar"), Some(Personality::Registrar));
        assert_eq!(Personality::of("livenessprobe"), Some(Personality::Liveness));
        assert_eq!(Personality::of("koord-runtime-proxy"), Some(Personality::RuntimeProxy));
        assert_eq!(Personality::of("csi-attacher"), Some(Personality::Attacher));
        assert_eq!(Personality::of("csi-resizer"), Some(Personality::Resizer));
        assert_eq!(Personality::of("csi-snapshotter"), Some(Personality::Snapshotter));
        assert_eq!(Personality::of("snapshot-controller"), Some(Personality::SnapshotController));
        assert_eq!(Personality::of("csi-provisioner"), Some(Personality::Provisioner));
        assert_eq!(Personality::of("wharf"), None);
    }
}
