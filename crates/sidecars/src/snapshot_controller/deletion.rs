//! Deletes a snapshot.

use std::sync::Arc;

use wharf_cluster::{
    ApiFailure, DataSource, Meta, Part, PersistentVolumeClaim, VolumeSnapshot,
    VolumeSnapshotContent,
};

use super::{
    SnapshotControllerCore,
    decide::{content_name, is_bound, is_held, is_restoring},
    document,
    failure::Failure,
    metrics::Timed,
    status,
};

impl SnapshotControllerCore {
    /// Removes the finalizers of a deleted snapshot, after its content is deleted, unless that is
    /// retained.
    pub(super) async fn delete(&self, snapshot: &Arc<VolumeSnapshot>) -> Result<(), Failure> {
        if !is_held(snapshot) {
            return Ok(());
        }
        self.options.metrics.begin(Timed::Delete, snapshot, self.driver_of(snapshot));
        let content = self.content_of_deleted(snapshot).await?;
        let mut waits = false;
        if let Some(content) = content {
            if self.is_restored_from(snapshot) {
                return Err(Failure::Restoring);
            }
            waits = self.delete_content(&content).await?;
        }
        self.release_claim(snapshot, true).await.map_err(Failure::ReleaseClaim)?;
        if waits {
            // The deletion of the content queues the snapshot again.
            return Ok(());
        }
        match self.snapshots.edit(snapshot, Part::Main, status::release).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Ok(()),
            Err(failure) => Err(Failure::Write(failure)),
        }
    }

    /// The content that is deleted with a snapshot. It has to be bound from both sides: the content
    /// of a different snapshot stays.
    async fn content_of_deleted(
        &self,
        snapshot: &VolumeSnapshot,
    ) -> Result<Option<Arc<VolumeSnapshotContent>>, Failure> {
        let of_claim = snapshot.spec.source.persistent_volume_claim_name.is_some();
        let known = |name: &str| self.contents.store().get(name);
        let content = match snapshot.bound_content() {
            Some(name) => known(name),
            // The content may be created but not yet recorded in the status.
            None if of_claim => {
                let name = content_name(snapshot);
                match known(&name) {
                    None => self.read_content(name).await?,
                    known => known,
                }
            }
            None => None,
        };
        Ok(content.filter(|content| is_bound(content, snapshot)))
    }

    async fn read_content(
        &self,
        name: String,
    ) -> Result<Option<Arc<VolumeSnapshotContent>>, Failure> {
        let of = Meta { name, ..Meta::default() };
        match self.contents.get(&of).await {
            Ok(content) => Ok(Some(content)),
            Err(ApiFailure::NotFound { .. }) => Ok(None),
            Err(failure) => Err(Failure::Write(failure)),
        }
    }

    fn is_restored_from(&self, snapshot: &VolumeSnapshot) -> bool {
        let source = DataSource {
            kind: "VolumeSnapshot".to_owned(),
            name: snapshot.metadata.name.clone(),
            ..DataSource::default()
        };
        let key = source.key(snapshot.metadata.namespace.as_deref().unwrap_or_default());
        let claims = self.claims.store().indexed(PersistentVolumeClaim::BY_SOURCE, &key);
        claims.iter().any(|claim| is_restoring(claim))
    }

    /// Whether the snapshot has to wait for the deletion of the content.
    async fn delete_content(&self, content: &Arc<VolumeSnapshotContent>) -> Result<bool, Failure> {
        // The snapshotter waits for this annotation, whoever deletes the content.
        let marked = match self.contents.edit(content, Part::Main, document::mark_deleted).await {
            Err(ApiFailure::NotFound { .. }) => return Ok(false),
            marked => marked.map_err(Failure::Write)?,
        };
        if marked.spec.deletion_policy != "Delete" {
            return Ok(false);
        }
        if marked.metadata.deleting {
            return Ok(true);
        }
        match self.contents.delete(&marked.metadata).await {
            Ok(left) => Ok(left.is_some()),
            Err(ApiFailure::NotFound { .. }) => Ok(false),
            Err(failure) => Err(Failure::DeleteContent(failure)),
        }
    }
}
