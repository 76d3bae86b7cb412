//! Compares the driver's list of attached volumes with the API.
//!
//! A volume may have been detached behind our back. The audit writes nothing itself: it queues the
//! attachment, so that only the operation acts.

use std::{collections::HashMap, sync::Arc};

use tonic::Status;
use wharf_cluster::{Key, VolumeAttachment};
use wharf_proto::csi::ListVolumesRequest;
use wharf_reconcile::Handle;

use super::{AttacherCore, decide::AttachCapabilities, failure::AttachRefusal};

impl AttacherCore {
    /// Audits repeatedly, for as long as the driver can list its attachments.
    pub(super) async fn audits(&self, attachments: &Handle<Key>) {
        if self.options.audit.is_zero() {
            return std::future::pending().await;
        }
        loop {
            let pass = tokio::time::timeout(self.options.audit_timeout, self.audit(attachments));
            match pass.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "failed to compare attachments with the driver");
                }
                Err(_) => {
                    let timeout = self.options.audit_timeout;
                    tracing::warn!(?timeout, "driver did not list its volumes in time");
                }
            }
            tokio::time::sleep(self.options.audit).await;
        }
    }

    async fn audit(&self, attachments: &Handle<Key>) -> Result<(), Status> {
        let capabilities = AttachCapabilities::of(&self.driver.capabilities().await?);
        if !capabilities.publishes || !capabilities.lists_nodes {
            return Ok(());
        }
        let known = self.attachments.store().all();
        let published = self.published().await?;
        for attachment in known.into_iter().filter(|it| self.serves(it)) {
            let (handle, node) = match self.place(&attachment) {
                Ok(place) => place,
                Err(error) => {
                    tracing::debug!(attachment = attachment.metadata.name, %error, "skipping attachment in comparison");
                    continue;
                }
            };
            let found = published.get(&handle).is_some_and(|nodes| nodes.contains(&node));
            let key: Key = attachment.metadata.name.as_str().into();
            if found != attachment.status.attached && self.rested(&attachment, attachments, &key) {
                tracing::warn!(
                    attachment = attachment.metadata.name,
                    volume = handle,
                    said = attachment.status.attached,
                    found,
                    "driver's list differs from the API, reconciling attachment"
                );
                self.forced().insert(Arc::clone(&key));
                attachments.wake(key);
            }
        }
        Ok(())
    }

    /// Whether the attachment has not changed and is not being processed since it was read: a
    /// difference during an operation is expected.
    fn rested(&self, read: &Arc<VolumeAttachment>, queue: &Handle<Key>, key: &Key) -> bool {
        let now = self.attachments.store().get(key);
        queue.snapshot(key).is_none() && now.is_some_and(|now| Arc::ptr_eq(&now, read))
    }

    /// The nodes of each volume in the driver's list.
    async fn published(&self) -> Result<HashMap<String, Vec<String>>, Status> {
        let mut published = HashMap::new();
        let mut token = String::new();
        loop {
            let page =
                ListVolumesRequest { max_entries: self.options.max_entries, starting_token: token };
            let mut controller = self.driver.controller();
            let send = |request| async move { controller.list_volumes(request).await };
            let answer = self.driver.call("ListVolumes", send, page).await?;
            for entry in answer.entries {
                if let (Some(volume), Some(status)) = (entry.volume, entry.status) {
                    published.insert(volume.volume_id, status.published_node_ids);
                }
            }
            token = answer.next_token;
            if token.is_empty() {
                return Ok(published);
            }
        }
    }

    /// The volume handle and node ID, as the driver knows them.
    fn place(&self, attachment: &VolumeAttachment) -> Result<(String, String), AttachRefusal> {
        let node = self.attached_node_id(attachment)?;
        Ok((self.attached_volume(attachment)?.handle, node))
    }
}
