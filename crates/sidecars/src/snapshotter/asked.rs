use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use wharf_cluster::VolumeSnapshotContent;

/// Parameters of CreateSnapshot calls without a final answer, by UID of the VolumeSnapshotContent.
///
/// The mark on a content passes them on to the next process. A retry sends the same parameters
/// until the driver gives a final answer, even if the VolumeSnapshotClass was replaced or deleted
/// meanwhile. A final error for other parameters would not show whether the driver has the snapshot
/// of the first call.
#[derive(Default)]
pub(super) struct Asked(Mutex<HashMap<String, BTreeMap<String, String>>>);

impl Asked {
    /// Returns the parameters of the first call for this content. Without an earlier call these are
    /// `parameters`.
    pub(super) fn first(
        &self,
        content: &VolumeSnapshotContent,
        parameters: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        self.all().entry(content.metadata.uid.clone()).or_insert(parameters).clone()
    }

    /// Returns the parameters of the first call for this content, if this process made one that has
    /// no final answer.
    pub(super) fn of(&self, content: &VolumeSnapshotContent) -> Option<BTreeMap<String, String>> {
        self.all().get(&content.metadata.uid).cloned()
    }

    /// Forgets a content: its call has a final answer, or the content is gone.
    pub(super) fn settled(&self, content: &VolumeSnapshotContent) {
        self.all().remove(&content.metadata.uid);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<String, String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
