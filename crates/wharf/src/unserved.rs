//! Flags of upstream that are accepted although their features are not built.
//!
//! Charts set them, so they never keep a program from starting. Each gives one warning with its
//! consequence. `docs/sidecars.md` has the same table, and a test compares the two.

use wharf_cli::{FeatureGates, FlagSet, Parsed};

/// A flag that is accepted and not obeyed.
struct Unserved {
    /// The programs that have it, by their upstream names.
    programs: &'static [&'static str],
    asked: Asked,
    /// Another switch, without which the flag has no effect upstream either.
    requires: Option<&'static str>,
    /// The consequence, and the remedy if there is one.
    consequence: &'static str,
}

/// How a command line asks for a feature that is not built.
enum Asked {
    /// The flag has another value than its default.
    Changed(&'static str),
    /// The switch is on, also if that is its default.
    On(&'static str),
    /// The feature gate has this value.
    Gate(&'static str, bool),
}

const ATTACHER: &str = "csi-attacher";
const LIVENESS: &str = "livenessprobe";
const PROVISIONER: &str = "csi-provisioner";
const REGISTRAR: &str = "csi-node-driver-registrar";
const RESIZER: &str = "csi-resizer";
const SNAPSHOT_CONTROLLER: &str = "snapshot-controller";
const SNAPSHOTTER: &str = "csi-snapshotter";

const ALL: &[&str] =
    &[ATTACHER, PROVISIONER, RESIZER, SNAPSHOTTER, SNAPSHOT_CONTROLLER, REGISTRAR, LIVENESS];

const TABLE: &[Unserved] = &[
    Unserved {
        programs: &[SNAPSHOTTER, SNAPSHOT_CONTROLLER],
        asked: Asked::Gate("CSIVolumeGroupSnapshot", true),
        requires: None,
        consequence: "VolumeGroupSnapshots are ignored and no group snapshot is taken or deleted; \
                      run the upstream program where they are needed",
    },
    Unserved {
        programs: &[SNAPSHOTTER, SNAPSHOT_CONTROLLER],
        asked: Asked::Changed("enable-volume-group-snapshots"),
        requires: None,
        consequence: "VolumeGroupSnapshots are ignored and no group snapshot is taken or deleted; \
                      run the upstream program where they are needed",
    },
    Unserved {
        programs: &[SNAPSHOTTER],
        asked: Asked::Changed("groupsnapshot-name-prefix"),
        requires: None,
        consequence: "no group snapshot is taken, so nothing gets this name",
    },
    Unserved {
        programs: &[SNAPSHOTTER],
        asked: Asked::Changed("groupsnapshot-name-uuid-length"),
        requires: None,
        consequence: "no group snapshot is taken, so nothing gets this name",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::On("node-deployment-immediate-binding"),
        requires: Some("node-deployment"),
        consequence: "claims of StorageClasses with volumeBindingMode Immediate get no volume; \
                      use WaitForFirstConsumer",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::Changed("node-deployment-base-delay"),
        requires: Some("node-deployment"),
        consequence: "no node waits before it takes a claim: claims with immediate binding are \
                      taken by none",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::Changed("node-deployment-max-delay"),
        requires: Some("node-deployment"),
        consequence: "no node waits before it takes a claim: claims with immediate binding are \
                      taken by none",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::Gate("CrossNamespaceVolumeDataSource", true),
        requires: None,
        consequence: "claims whose dataSourceRef names another namespace get an event and no volume",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::Changed("enable-pprof"),
        requires: None,
        consequence: "no profile is served: the process has no Go runtime",
    },
    Unserved {
        programs: &[RESIZER],
        asked: Asked::Gate("RecoverVolumeExpansionFailure", false),
        requires: None,
        consequence: "recovery stays on: claims have allocatedResources in their status, and a \
                      failed expansion can be lowered",
    },
    Unserved {
        programs: &[ATTACHER],
        asked: Asked::Gate("MutableCSINodeAllocatableCount", false),
        requires: None,
        consequence: "the error code of a failed attachment is still written to its status",
    },
    Unserved {
        programs: ALL,
        asked: Asked::Changed("automaxprocs"),
        requires: None,
        consequence: "GOMAXPROCS is not set: the process has no Go runtime",
    },
];

/// Programs that accept the gates of in-tree migration.
const MIGRATING: &[&str] = &[ATTACHER, PROVISIONER, RESIZER];

/// The consequence of setting one of [`MIGRATION`].
const NO_MIGRATION: &str = "volumes of in-tree plugins are not translated, and work on them fails with an error that says so";

/// Kubernetes' gates of in-tree migration.
const MIGRATION: &[&str] = &[
    "CSIMigration",
    "CSIMigrationAWS",
    "CSIMigrationAWSComplete",
    "CSIMigrationAzureDisk",
    "CSIMigrationAzureDiskComplete",
    "CSIMigrationAzureFile",
    "CSIMigrationAzureFileComplete",
    "CSIMigrationGCE",
    "CSIMigrationGCEComplete",
    "CSIMigrationOpenStack",
    "CSIMigrationOpenStackComplete",
    "CSIMigrationPortworx",
    "CSIMigrationRBD",
    "CSIMigrationvSphere",
    "CSIMigrationvSphereComplete",
];

/// Programs that link Kubernetes' API server library, and so accept its gates.
const SERVING: &[&str] = &[ATTACHER, PROVISIONER, RESIZER, SNAPSHOTTER, SNAPSHOT_CONTROLLER];

/// The consequence of setting one of [`API_SERVER`].
const NO_API_SERVER: &str = "nothing changes: the gate is of Kubernetes' API server library";

/// Gates that upstream's programs inherit from Kubernetes' API server library 0.36 and list in
/// their help.
const API_SERVER: &[&str] = &[
    "APIResponseCompression",
    "APIServerIdentity",
    "APIServingWithRoutine",
    "AllowParsingUserUIDFromCertAuth",
    "AllowUnsafeMalformedObjectDeletion",
    "CBORServingAndStorage",
    "ComponentFlagz",
    "ComponentStatusz",
    "ConcurrentWatchObjectDecode",
    "ConstrainedImpersonation",
    "CoordinatedLeaderElection",
    "DeclarativeValidationBeta",
    "DetectCacheInconsistency",
    "ListFromCacheSnapshot",
    "ManifestBasedAdmissionControlConfig",
    "NativeHistograms",
    "OpenAPIEnums",
    "RemoteRequestHeaderUID",
    "ShardedListAndWatch",
    "SizeBasedListCostEstimate",
    "StorageVersionAPI",
    "StorageVersionHash",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics",
    "TokenRequestServiceAccountUIDValidation",
    "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy",
    "WatchCacheInitializationPostStartHook",
    "WatchList",
];

/// Makes the command line of `program`, an upstream name, warn of flags that are not obeyed.
/// Declare its flags first.
pub(crate) fn warn_of(set: &mut FlagSet, program: &'static str) {
    set.warn_when(move |parsed| {
        let rows = TABLE.iter().filter(|row| row.programs.contains(&program));
        rows.filter(|row| row.is_asked(parsed))
            .map(|row| format!("{} is not served: {}", row.flag(), row.consequence))
            .collect()
    });
}

/// Adds upstream's gates of `program` that have no effect here.
pub(crate) fn foreign_gates(gates: FeatureGates, program: &str) -> FeatureGates {
    let gates =
        if MIGRATING.contains(&program) { gates.foreign(MIGRATION, NO_MIGRATION) } else { gates };
    if SERVING.contains(&program) { gates.foreign(API_SERVER, NO_API_SERVER) } else { gates }
}

impl Unserved {
    fn is_asked(&self, parsed: &Parsed) -> bool {
        let is_on = |flag: &str| parsed.shown(flag).as_deref() == Some("true");
        let asked = match self.asked {
            Asked::Changed(flag) => parsed.differs(flag),
            Asked::On(flag) => is_on(flag),
            Asked::Gate(gate, value) => parsed.feature(gate) == Some(value),
        };
        asked && self.requires.is_none_or(is_on)
    }

    /// The flag as a command line has it.
    fn flag(&self) -> String {
        match self.asked {
            Asked::Changed(flag) => format!("--{flag}"),
            Asked::On(flag) => format!("--{flag}=true"),
            Asked::Gate(gate, value) => format!("--feature-gates={gate}={value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCS: &str = include_str!("../../../docs/sidecars.md");

    fn row(flag: &str, programs: &[&str], consequence: &str) -> String {
        let programs: Vec<String> = programs.iter().map(|name| format!("`{name}`")).collect();
        let programs = match programs.len() {
            7 => "all".to_owned(),
            _ => programs.join(", "),
        };
        format!("| {flag} | {programs} | {consequence} |")
    }

    fn names(gates: &[&str]) -> String {
        let names: Vec<String> = gates.iter().map(|gate| format!("`{gate}`")).collect();
        format!("`--feature-gates` with {}", names.join(", "))
    }

    #[test]
    fn the_docs_have_the_same_table() {
        let mut wanted: Vec<String> = TABLE
            .iter()
            .map(|it| {
                let with = it.requires.map(|flag| format!(" with `--{flag}`")).unwrap_or_default();
                row(&format!("`{}`{with}", it.flag()), it.programs, it.consequence)
            })
            .collect();
        wanted.push(row(&names(MIGRATION), MIGRATING, NO_MIGRATION));
        wanted.push(row(&names(API_SERVER), SERVING, NO_API_SERVER));
        let (_, section) = DOCS.split_once("\n## Flags that are not served\n").unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows = section.lines().filter(|line| line.starts_with('|'));
        // The first two are the head of the table.
        let found: Vec<&str> = rows.skip(2).collect();
        assert_eq!(found, wanted, "the table should be\n{}", wanted.join("\n"));
    }
}
