//! Calls the driver, and reads class and secrets for the calls.

use std::{collections::BTreeMap, sync::Arc};

use tonic::Status;
use wharf_cluster::{SecretReference, VolumeSnapshotClass, VolumeSnapshotContent};
use wharf_proto::csi::{
    CreateSnapshotRequest, DeleteSnapshotRequest, ListSnapshotsRequest, Snapshot,
};

use super::{SnapshotterCore, failure::ContentRefusal, request};
use crate::{
    secret,
    snapshot_class::{self, Names, SecretUse},
};

impl SnapshotterCore {
    pub(super) fn class(
        &self,
        content: &VolumeSnapshotContent,
    ) -> Result<Arc<VolumeSnapshotClass>, ContentRefusal> {
        let Some(name) = &content.spec.volume_snapshot_class_name else {
            return Err(ContentRefusal::NoClass(content.metadata.name.clone()));
        };
        self.classes.get(name).ok_or_else(|| ContentRefusal::UnknownClass(name.clone().into()))
    }

    pub(super) async fn secrets(
        &self,
        content: &VolumeSnapshotContent,
    ) -> Result<BTreeMap<String, String>, ContentRefusal> {
        let reference = request::secret(content)?;
        self.read_secret(content, reference.as_ref()).await
    }

    pub(super) async fn list_secrets(
        &self,
        content: &VolumeSnapshotContent,
    ) -> Result<BTreeMap<String, String>, ContentRefusal> {
        let Some(name) = &content.spec.volume_snapshot_class_name else {
            return Ok(BTreeMap::new());
        };
        let owner = &content.metadata.name;
        let class = self.classes.get(name).ok_or_else(|| ContentRefusal::UnknownClassOf {
            class: name.clone().into(),
            content: owner.clone(),
        })?;
        let names = Names { content: owner, snapshot: None };
        let reference = snapshot_class::secret(SecretUse::List, &class.parameters, names);
        let reference = reference
            .map_err(|error| ContentRefusal::SecretName { content: owner.clone(), error })?;
        self.read_secret(content, reference.as_ref()).await
    }

    async fn read_secret(
        &self,
        content: &VolumeSnapshotContent,
        reference: Option<&SecretReference>,
    ) -> Result<BTreeMap<String, String>, ContentRefusal> {
        let name = || content.metadata.name.clone();
        let read = secret::read(&self.client, reference).await;
        read.map_err(|failure| ContentRefusal::Secret {
            content: name(),
            failure: Box::new(failure),
        })
    }

    pub(super) async fn create_snapshot(
        &self,
        call: CreateSnapshotRequest,
    ) -> Result<Snapshot, Status> {
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.create_snapshot(request).await };
        let answer = self.driver.call("CreateSnapshot", send, call).await?;
        // The state of such a driver's snapshot is unknown: the call is repeated.
        answer.snapshot.ok_or_else(|| Status::unavailable("the driver answered without a snapshot"))
    }

    pub(super) async fn find_snapshot(
        &self,
        handle: &str,
        secrets: BTreeMap<String, String>,
    ) -> Result<Option<Snapshot>, Status> {
        let snapshot_id = handle.to_owned();
        let call = ListSnapshotsRequest { snapshot_id, secrets, ..ListSnapshotsRequest::default() };
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.list_snapshots(request).await };
        let answer = self.driver.call("ListSnapshots", send, call).await?;
        Ok(answer.entries.into_iter().next().and_then(|entry| entry.snapshot))
    }

    pub(super) async fn delete_snapshot(
        &self,
        snapshot_id: String,
        secrets: BTreeMap<String, String>,
    ) -> Result<(), Status> {
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.delete_snapshot(request).await };
        let call = DeleteSnapshotRequest { snapshot_id, secrets };
        self.driver.call("DeleteSnapshot", send, call).await.map(drop)
    }
}
