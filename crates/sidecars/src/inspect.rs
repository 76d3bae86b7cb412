//! Explains what the storage objects of a cluster wait for, and who has to act.
//!
//! The kubelet, the scheduler, kube-controller-manager, the sidecars and the driver wait for each
//! other, and each reports only its own part. This module combines their reports: a [`Finding`] for
//! an object has its state, the actor and the next action, and the last error.
//!
//! - `cluster_snapshot`: the objects at one moment.
//! - `claim`, `volume`, `attachment`, `snapshot`, `content`, `group_snapshot`, `pod`: findings
//!   about one object, as pure functions of the cluster snapshot.
//! - `subject`: an object to be explained, and its dependencies.

mod attachment;
mod claim;
mod cluster_snapshot;
mod content;
mod group_snapshot;
mod pod;
mod snapshot;
mod subject;
mod volume;

use wharf_cluster::{InternedStr, Meta};

pub use cluster_snapshot::{ClusterSnapshot, Listed};
pub use subject::{Subject, SubjectKind};

/// A finding about an object.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Its kind in lower case: `claim`, `volume`, `attachment`, `snapshot`, `content`, `group
    /// snapshot` or `pod`.
    pub kind: &'static str,
    /// The namespace of a namespaced object.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its state, in one word.
    pub stage: String,
    /// Its age, in seconds.
    pub age: Option<u64>,
    /// The actor; `None` if nothing waits.
    pub who: Option<String>,
    /// The reason for waiting, in one sentence.
    pub waits_for: Option<String>,
    /// The last error.
    pub last_error: Option<String>,
}

/// The reason for waiting, and the actor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wait {
    who: String,
    what: String,
}

impl Wait {
    fn new(who: impl Into<String>, what: impl Into<String>) -> Option<Self> {
        Some(Self { who: who.into(), what: what.into() })
    }
}

impl ClusterSnapshot {
    /// Findings about all objects, claims first.
    pub fn findings(&self) -> Vec<Finding> {
        let claims = self.claims.iter().map(|it| claim::finding(self, it));
        let volumes = self.volumes.iter().map(|it| volume::finding(self, it));
        let attachments = self.attachments.iter().map(|it| attachment::finding(self, it));
        let snapshots = self.snapshots.iter().map(|it| snapshot::finding(self, it));
        let groups = self.group_snapshots.iter().map(|it| group_snapshot::finding(self, it));
        claims.chain(volumes).chain(attachments).chain(snapshots).chain(groups).collect()
    }
}

/// The finalizers of an object that is being deleted, as one text.
fn held_by(meta: &Meta) -> String {
    let finalizers: Vec<&str> = meta.finalizers.iter().map(InternedStr::as_str).collect();
    format!("held by its finalizers: {}", finalizers.join(", "))
}

#[cfg(test)]
mod tests;
