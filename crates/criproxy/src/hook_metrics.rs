//! What is counted of hook servers and their files.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::{HookPoint, config::FailurePolicy, edit::Field};

const BUCKETS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];

/// Hook calls, what came of them, and the files that servers are known from. Clones count
/// together.
#[derive(Clone, Debug)]
pub struct HookMetrics {
    calls: Family<Called, Counter>,
    seconds: Family<Hook, Histogram, fn() -> Histogram>,
    policies: Family<Applied, Counter>,
    changes: Family<Changed, Counter>,
    conflicts: Family<Contested, Counter>,
    rehearsals: Family<Rehearsed, Counter>,
    files: Family<FileState, Gauge>,
    reloads: Counter,
    required_missing: Gauge,
}

impl Default for HookMetrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            policies: Family::default(),
            changes: Family::default(),
            conflicts: Family::default(),
            rehearsals: Family::default(),
            files: Family::default(),
            reloads: Counter::default(),
            required_missing: Gauge::default(),
        }
    }
}

impl HookMetrics {
    /// Exports what is counted.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "wharf_proxy_hook_calls",
            "Calls of hook servers, by server, hook and outcome: ok, timeout, conflict, missing or an error code",
            self.calls.clone(),
        );
        registry.register(
            "wharf_proxy_hook_seconds",
            "Time that hook servers took, by server and hook",
            self.seconds.clone(),
        );
        registry.register(
            "wharf_proxy_hook_failures",
            "Failed calls of hook servers, by server, hook and the policy that was applied",
            self.policies.clone(),
        );
        registry.register(
            "wharf_proxy_hook_changes",
            "Fields that hook servers changed, by server and kind of field",
            self.changes.clone(),
        );
        registry.register(
            "wharf_proxy_hook_conflicts",
            "Fields that two hook servers wanted to change, by both servers and the outcome",
            self.conflicts.clone(),
        );
        registry.register(
            "wharf_proxy_hook_dry_run_changes",
            "Fields that servers in a dry run would have changed, compared with what was applied: new, same or different",
            self.rehearsals.clone(),
        );
        registry.register(
            "wharf_proxy_hook_config_files",
            "Files of hook servers: loaded, refused, or empty and waited for",
            self.files.clone(),
        );
        registry.register(
            "wharf_proxy_hook_config_reloads",
            "Times that other hook servers were put in force",
            self.reloads.clone(),
        );
        registry.register(
            "wharf_proxy_hook_servers_missing",
            "Required hook servers without a usable file: calls that they hook are refused",
            self.required_missing.clone(),
        );
    }

    pub(crate) fn took(&self, server: &str, point: HookPoint, duration: Duration) {
        let (server, hook) = (server.to_owned(), point.name());
        self.seconds.get_or_create(&Hook { server, hook }).observe(duration.as_secs_f64());
    }

    pub(crate) fn ended(&self, server: &str, point: HookPoint, outcome: &'static str) {
        let (server, hook) = (server.to_owned(), point.name());
        self.calls.get_or_create(&Called { server, hook, outcome }).inc();
    }

    pub(crate) fn applied(&self, server: &str, point: HookPoint, policy: FailurePolicy) {
        let (server, hook, policy) = (server.to_owned(), point.name(), policy.name());
        self.policies.get_or_create(&Applied { server, hook, policy }).inc();
    }

    pub(crate) fn changed(&self, server: &str, field: &Field) {
        let (server, field) = (server.to_owned(), kind(field));
        self.changes.get_or_create(&Changed { server, field }).inc();
    }

    pub(crate) fn rehearsal_failed(&self, server: &str, point: HookPoint) {
        let (server, hook) = (server.to_owned(), point.name());
        self.policies.get_or_create(&Applied { server, hook, policy: "dry-run" }).inc();
    }

    pub(crate) fn rehearsed(&self, server: &str, field: &Field, compared: &'static str) {
        let (server, field) = (server.to_owned(), kind(field));
        self.rehearsals.get_or_create(&Rehearsed { server, field, compared }).inc();
    }

    pub(crate) fn contested(&self, server: &str, owner: &str, resolution: &'static str) {
        let (server, owner) = (server.to_owned(), owner.to_owned());
        self.conflicts.get_or_create(&Contested { server, owner, resolution }).inc();
    }

    pub(crate) fn config_files(&self, state: &'static str, files: usize) {
        let files = i64::try_from(files).unwrap_or(i64::MAX);
        self.files.get_or_create(&FileState { state }).set(files);
    }

    pub(crate) fn required_missing(&self, servers: usize) {
        self.required_missing.set(i64::try_from(servers).unwrap_or(i64::MAX));
    }

    pub(crate) fn config_reloaded(&self) {
        self.reloads.inc();
    }
}

/// Keys are the authors' to choose, so only their kind is told apart.
fn kind(field: &Field) -> &'static str {
    match field {
        Field::Label(_) => "labels",
        Field::Annotation(_) => "annotations",
        Field::CgroupParent => "cgroup_parent",
        Field::Amount(_) => "resources",
        Field::Cpuset(_) => "cpuset",
        Field::Unified(_) => "unified",
        Field::Env(_) => "envs",
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Hook {
    server: String,
    hook: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Called {
    server: String,
    hook: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Applied {
    server: String,
    hook: &'static str,
    policy: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Changed {
    server: String,
    field: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Rehearsed {
    server: String,
    field: &'static str,
    compared: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Contested {
    server: String,
    owner: String,
    resolution: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FileState {
    state: &'static str,
}
