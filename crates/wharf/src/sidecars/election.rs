//! Flags of the leader election, and the identity of this replica in it.

use std::{collections::BTreeMap, path::Path, time::Duration};

use wharf_cli::{Flag, FlagError, FlagSet, Parsed};
use wharf_cluster::{ElectionOptions, ElectionTiming, ReplicaIdentity};
use wharf_facts::lease;

use super::flags::{Retired, retire};

/// The file in a pod that holds the name of its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

pub(super) struct ElectionFlags {
    enabled: Flag<bool>,
    namespace: Flag<String>,
    lease_duration: Flag<Duration>,
    renew_deadline: Flag<Duration>,
    retry_period: Flag<Duration>,
    labels: Flag<BTreeMap<String, String>>,
}

/// An election without the name of its Lease, which is known once the driver has answered its name.
#[derive(Clone, Debug)]
pub(super) struct ElectionPlan {
    namespace: String,
    labels: BTreeMap<String, String>,
    timing: ElectionTiming,
    release: bool,
}

impl ElectionFlags {
    pub(super) fn register(set: &mut FlagSet) -> Self {
        let seconds = Duration::from_secs;
        let flags = Self {
            enabled: set.bool(
                "leader-election",
                false,
                "Elect a leader, so that one of several replicas works at a time.",
            ),
            namespace: set.string(
                "leader-election-namespace",
                "",
                "Namespace of the Lease. Empty: the pod's namespace.",
            ),
            lease_duration: set.duration(
                "leader-election-lease-duration",
                seconds(15),
                "Time after the last renewal for which other replicas believe that the leader lives.",
            ),
            renew_deadline: set.duration(
                "leader-election-renew-deadline",
                seconds(10),
                "Time for which a leader tries to renew its Lease before it stops working.",
            ),
            retry_period: set.duration(
                "leader-election-retry-period",
                seconds(5),
                "Interval at which the Lease is renewed, and read where it cannot be watched.",
            ),
            labels: set.string_map(
                "leader-election-labels",
                BTreeMap::new(),
                "Labels for the Lease, as key:value,key:value.",
            ),
        };
        retire(
            set,
            &[
                ("leader-election-type", Retired::Text, "elections are held with Leases"),
                (
                    "leader-election-identity",
                    Retired::Text,
                    "the identity begins with the host's name",
                ),
            ],
        );
        flags
    }

    /// The election that the flags ask for; `None` without --leader-election.
    pub(super) fn plan(
        &self,
        parsed: &Parsed,
        release: bool,
    ) -> Result<Option<ElectionPlan>, FlagError> {
        if !*parsed.get(&self.enabled) {
            return Ok(None);
        }
        let times = [&self.lease_duration, &self.renew_deadline, &self.retry_period];
        let [lease, renew, retry] = times.map(|flag| *parsed.get(flag));
        let timing = ElectionTiming::new(lease, renew, retry).map_err(|error| {
            parsed.usage_error(format_args!(
                "--leader-election-lease-duration, -renew-deadline and -retry-period: {error}"
            ))
        })?;
        let namespace = match parsed.get(&self.namespace).as_str() {
            "" => pod_namespace(std::env::var("POD_NAMESPACE").ok(), Path::new(NAMESPACE_FILE)),
            given => given.to_owned(),
        };
        let labels = parsed.get(&self.labels).clone();
        Ok(Some(ElectionPlan { namespace, labels, timing, release }))
    }
}

impl ElectionPlan {
    /// Time after the last renewal for which other replicas believe that the leader lives.
    pub(super) fn lease_duration(&self) -> Duration {
        self.timing.lease_duration()
    }

    /// Whether the Lease is released at the end.
    pub(super) fn releases(&self) -> bool {
        self.release
    }

    /// The election for the Lease of this name.
    pub(super) fn options(&self, lease: String) -> ElectionOptions {
        let host = lease::host(&rustix::system::uname().nodename().to_string_lossy());
        ElectionOptions {
            identity: ReplicaIdentity::of_process(&host, &self.namespace, &lease),
            namespace: self.namespace.clone(),
            name: lease,
            labels: self.labels.clone(),
            timing: self.timing,
            release: self.release,
        }
    }
}

/// The pod's namespace: from its variable, then from its file, then `default`.
fn pod_namespace(variable: Option<String>, file: &Path) -> String {
    let filled = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    variable
        .and_then(filled)
        .or_else(|| std::fs::read_to_string(file).ok().and_then(filled))
        .unwrap_or_else(|| "default".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> Result<Option<ElectionPlan>, String> {
        let mut set = FlagSet::new("csi-test", "");
        let flags = ElectionFlags::register(&mut set);
        let parsed = set.parse(args.iter().copied()).map_err(|error| error.to_string())?;
        flags.plan(&parsed, false).map_err(|error| error.to_string())
    }

    #[test]
    fn an_election_is_held_when_asked_for() {
        assert!(plan(&[]).unwrap().is_none());
        assert!(
            plan(&["--leader-election=false", "--leader-election-renew-deadline=1h"])
                .unwrap()
                .is_none()
        );
        let plan = plan(&[
            "-leader-election",
            "--leader-election-namespace=storage",
            "--leader-election-labels=team:storage,tier:csi",
            "--leader-election-type=leases",
        ])
        .unwrap()
        .unwrap();
        let options = plan.options(lease::attacher("csi.example.com"));
        assert_eq!(options.name, "external-attacher-leader-csi-example-com");
        assert_eq!(options.namespace, "storage");
        assert_eq!(options.timing, ElectionTiming::default());
        assert_eq!(options.labels["tier"], "csi");
        assert!(!options.identity.as_str().is_empty() && !options.release);
    }

    #[test]
    fn times_that_make_no_election_name_their_flags() {
        let error =
            plan(&["--leader-election", "--leader-election-lease-duration=10s"]).unwrap_err();
        assert!(
            error.starts_with(
                "--leader-election-lease-duration, -renew-deadline and -retry-period: \
                 the lease duration (10s) must be longer than the renew deadline (10s)"
            ),
            "{error}"
        );
    }

    #[test]
    fn the_pod_s_namespace_comes_from_its_variable_then_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("namespace");
        assert_eq!(pod_namespace(None, &file), "default");
        std::fs::write(&file, "from-file\n").unwrap();
        assert_eq!(pod_namespace(None, &file), "from-file");
        assert_eq!(pod_namespace(Some(String::new()), &file), "from-file");
        assert_eq!(pod_namespace(Some("from-variable".to_owned()), &file), "from-variable");
    }
}
