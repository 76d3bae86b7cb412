//! The programs that tests run, and their differences.

/// The user of a process that holds all controllers.
pub(crate) const COMBINED: &str = "sidecars";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Provisioner,
    Attacher,
    Resizer,
    Snapshotter,
    SnapshotController,
}

/// Who made a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    Ours,
    Go,
}

/// What a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    One(Kind, Make),
    /// All controllers of ours.
    Combined,
    /// Those of ours that run where none are named.
    OfDriver,
    /// Those of ours that a driver of one node has beside it.
    OnNode,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Provisioner,
        Self::Attacher,
        Self::Resizer,
        Self::Snapshotter,
        Self::SnapshotController,
    ];

    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Provisioner => "csi-provisioner",
            Self::Attacher => "csi-attacher",
            Self::Resizer => "csi-resizer",
            Self::Snapshotter => "csi-snapshotter",
            Self::SnapshotController => "snapshot-controller",
        }
    }

    /// The user that has the roles of its file.
    fn user(self) -> &'static str {
        let program = self.program();
        program.strip_prefix("csi-").unwrap_or(program)
    }

    /// What the driver is called for: by the controller, but for the one that has no driver.
    pub(crate) fn rpc(self) -> &'static str {
        match self {
            Self::Provisioner => "CreateVolume",
            Self::Attacher => "ControllerPublishVolume",
            Self::Resizer => "ControllerExpandVolume",
            Self::Snapshotter | Self::SnapshotController => "CreateSnapshot",
        }
    }

    /// The name of its Lease, for a driver whose name has no dots.
    pub(crate) fn lease(self, driver: &str) -> String {
        match self {
            Self::Provisioner => driver.to_owned(),
            Self::Attacher => format!("external-attacher-leader-{driver}"),
            Self::Resizer => format!("external-resizer-{driver}"),
            Self::Snapshotter => format!("external-snapshotter-leader-{driver}"),
            Self::SnapshotController => "snapshot-controller-leader".to_owned(),
        }
    }
}

impl Make {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Ours => Self::Go,
            Self::Go => Self::Ours,
        }
    }
}

impl Program {
    pub(crate) fn make(self) -> Make {
        match self {
            Self::One(_, make) => make,
            Self::Combined | Self::OfDriver | Self::OnNode => Make::Ours,
        }
    }

    /// The names of its Leases.
    pub(crate) fn leases(self, driver: &str) -> Vec<String> {
        match self {
            Self::One(kind, _) => vec![kind.lease(driver)],
            Self::Combined => Kind::ALL.map(|kind| kind.lease(driver)).into(),
            Self::OfDriver | Self::OnNode => Vec::new(),
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::One(kind, make) => format!("{make:?}-{}", kind.program()),
            Self::Combined | Self::OfDriver | Self::OnNode => COMBINED.to_owned(),
        }
    }

    /// The user that has its roles. Go's have ours: images and manifests may change one after the
    /// other.
    pub(crate) fn user(self) -> &'static str {
        match self {
            Self::One(kind, _) => kind.user(),
            Self::Combined | Self::OfDriver | Self::OnNode => COMBINED,
        }
    }

    pub(crate) fn has_driver(self) -> bool {
        !matches!(self, Self::One(Kind::SnapshotController, _))
    }

    /// Feature gates that are not as they would be. The kinds of group snapshots are not installed.
    pub(crate) fn gates(self) -> &'static [&'static str] {
        match self {
            // Ours has it on, as the releases after Go's here.
            Self::One(Kind::Resizer, Make::Go) => &["--feature-gates=VolumeAttributesClass=true"],
            Self::One(Kind::Snapshotter | Kind::SnapshotController, _) => {
                &["--feature-gates=CSIVolumeGroupSnapshot=false"]
            }
            Self::One(..) => &[],
            Self::OfDriver | Self::OnNode => {
                &["--snapshotter-feature-gates=CSIVolumeGroupSnapshot=false"]
            }
            Self::Combined => &[
                "--snapshotter-feature-gates=CSIVolumeGroupSnapshot=false",
                "--snapshot-controller-feature-gates=CSIVolumeGroupSnapshot=false",
            ],
        }
    }
}
