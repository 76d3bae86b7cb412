//! Flags of upstream that are accepted although what they ask for is not built.
//!
//! Charts set them, so they never keep a program from starting. Each gives one warning that says
//! what will not happen. `docs/sidecars.md` has the same table, and a test compares the two.

use wharf_cli::{FeatureGates, FlagSet, Parsed};

/// A flag that is accepted and not obeyed.
struct Unserved {
    /// The programs that have it, by their upstream names.
    programs: &'static [&'static str],
    asked: Asked,
    /// Another switch without which the flag has no effect upstream either.
    beside: Option<&'static str>,
    /// What will not happen, and what to do.
    consequence: &'static str,
}

/// How a command line asks for what is not served.
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
        beside: None,
        consequence: "VolumeGroupSnapshots are ignored and no group snapshot is taken or deleted; \
                      run the upstream program where they are needed",
    },
    Unserved {
        programs: &[SNAPSHOTTER, SNAPSHOT_CONTROLLER],
        asked: Asked::Changed("enable-volume-group-snapshots"),
        beside: None,
        consequence: "VolumeGroupSnapshots are ignored and no group snapshot is taken or deleted; \
                      run the upstream program where they are needed",
    },
    Unserved {
        programs: &[SNAPSHOTTER],
        asked: Asked::Changed("groupsnapshot-name-prefix"),
        beside: None,
        consequence: "no group snapshot is taken, so nothing gets this name",
    },
    Unserved {
        programs: &[SNAPSHOTTER],
        asked: Asked::Changed("groupsnapshot-name-uuid-length"),
        beside: None,
        consequence: "no group snapshot is taken, so nothing gets this name",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::On("node-deployment-immediate-binding"),
        beside: Some("node-deployment"),
        consequence: "claims of StorageClasses with volumeBindingMode Immediate get no volume; \
                      use WaitForFirstConsumer",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::Changed("node-deployment-base-delay"),
        beside: Some("node-deployment"),
        consequence: "no node waits before it takes a claim: claims with immediate binding are \
                      taken by none",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::Changed("node-deployment-max-delay"),
        beside: Some("node-deployment"),
        consequence: "no node waits before it takes a claim: claims with immediate binding are \
                      taken by none",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::Gate("CrossNamespaceVolumeDataSource", true),
        beside: None,
        consequence: "claims whose dataSourceRef names another namespace get an event and no volume",
    },
    Unserved {
        programs: &[PROVISIONER],
        asked: Asked::Changed("enable-pprof"),
        beside: None,
        consequence: "no profile is served: the process has no Go runtime",
    },
    Unserved {
        programs: &[RESIZER],
        asked: Asked::Gate("RecoverVolumeExpansionFailure", false),
        beside: None,
        consequence: "recovery stays on: claims have allocatedResources in their status, and a \
                      failed expansion can be lowered",
    },
    Unserved {
        programs: &[ATTACHER],
        asked: Asked::Gate("MutableCSINodeAllocatableCount", false),
        beside: None,
        consequence: "the error code of a failed attachment is still written to its status",
    },
    Unserved {
        programs: ALL,
        asked: Asked::Changed("automaxprocs"),
        beside: None,
        consequence: "GOMAXPROCS is not set: the process has no Go runtime",
    },
];

/// Gates of in-tree migration, which are Kubernetes' own. Programs that take them.
const MIGRATING: &[&str] = &[ATTACHER, PROVISIONER, RESIZER];

/// What setting one of [`MIGRATION`] does not do.
const NO_MIGRATION: &str = "volumes of in-tree plugins are not translated, and work on them fails with an error that says so";

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

/// Programs that link Kubernetes' API server library and so have its gates.
const SERVING: &[&str] = &[ATTACHER, PROVISIONER, RESIZER, SNAPSHOTTER, SNAPSHOT_CONTROLLER];

/// What setting one of [`API_SERVER`] does not do.
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

/// Has the command lines of `program`, an upstream name, warn of what is not served. Its flags are
/// declared before.
pub(crate) fn warn_of(set: &mut FlagSet, program: &'static str) {
    set.warn_when(move |parsed| {
        let rows = TABLE.iter().filter(|row| row.programs.contains(&program));
        rows.filter(|row| row.is_asked(parsed))
            .map(|row| format!("{} is not served: {}", row.flag(), row.consequence))
            .collect()
    });
}

/// Adds the gates to those of `program` that upstream has and that change nothing here.
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
        asked && self.beside.is_none_or(is_on)
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
                let beside = it.beside.map(|flag| format!(" with `--{flag}`")).unwrap_or_default();
                row(&format!("`{}`{beside}", it.flag()), it.programs, it.consequence)
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
