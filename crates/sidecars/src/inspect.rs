//! What the storage objects of a cluster wait for, and who has to act.
//!
//! Each of kubelet, scheduler, kube-controller-manager, the sidecars and the driver does its part and waits for the others,
//! and each writes down only its own. Here what all of them wrote is put together: a [`Finding`] for an object says how far
//! it has come, who has to do what next, and what went wrong last.
//!
//! - `world`: the objects, as they were at one moment.
//! - `claim`, `volume`, `attachment`, `snapshot`, `content`, `group_snapshot`, `pod`: what is found about one, as pure
//!   functions of the world.
//! - `subject`: an object that somebody asks about, and what it depends on.

mod attachment;
mod claim;
mod content;
mod group_snapshot;
mod pod;
mod snapshot;
mod subject;
mod volume;
mod world;

use wharf_cluster::{Meta, Word};

pub use subject::{Subject, SubjectKind};
pub use world::{Listed, World};

/// What is found about an object.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Its kind as people call it: `claim`, `volume`, `attachment`, `snapshot`, `content`, `group snapshot` or `pod`.
    pub kind: &'static str,
    /// Its namespace, if it lives in one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// How far it has come, in one word.
    pub stage: String,
    /// How old it is, in seconds.
    pub age: Option<u64>,
    /// Who has to act; nobody if all is well.
    pub who: Option<String>,
    /// What it waits for, in one sentence.
    pub waits_for: Option<String>,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// What an object waits for, and who has to act.
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

impl World {
    /// What is found about all objects, claims first.
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
    let finalizers: Vec<&str> = meta.finalizers.iter().map(Word::as_str).collect();
    format!("held by its finalizers: {}", finalizers.join(", "))
}

#[cfg(test)]
mod not_served_tests;
