//! Compares where the driver says its volumes are attached with what the API says.
//!
//! Someone may have detached a volume behind our back. The audit writes nothing itself: it makes the attachment be worked
//! on once more, by the one operation that ever does.

use std::{collections::HashMap, sync::Arc};

use tonic::Status;
use wharf_cluster::{Key, VolumeAttachment};
use wharf_proto::csi::ListVolumesRequest;
use wharf_reconcile::Handle;

use super::{Shared, decide::Abilities, failure::Refusal};

impl Shared {
    /// Audits for ever, for as long as the driver can tell.
    pub(super) async fn audits(&self, attachments: &Handle<Key>) {
        if self.options.audit.is_zero() {
            return std::future::pending().await;
        }
        loop {
            let pass = tokio::time::timeout(self.options.audit_timeout, self.audit(attachments));
            match pass.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "attachments could not be compared with the driver");
                }
                Err(_) => {
                    let timeout = self.options.audit_timeout;
                    tracing::warn!(?timeout, "the driver did not list its volumes in time");
                }
            }
            tokio::time::sleep(self.options.audit).await;
        }
    }

    async fn audit(&self, attachments: &Handle<Key>) -> Result<(), Status> {
        let abilities = Abilities::of(&self.driver.capabilities().await?);
        if !abilities.publishes || !abilities.lists_nodes {
            return Ok(());
        }
        let known = self.attachments.store().all();
        let published = self.published().await?;
        for attachment in known.into_iter().filter(|it| self.serves(it)) {
            let (handle, node) = match self.place(&attachment) {
                Ok(place) => place,
                Err(error) => {
                    tracing::debug!(attachment = attachment.metadata.name, %error, "attachment left out of the comparison");
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
                    "the driver's account differs from the API's: working on the attachment once more"
                );
                self.forced().insert(Arc::clone(&key));
                attachments.wake(key);
            }
        }
        Ok(())
    }

    /// Whether nothing has been done about the attachment since it was read: what differs while someone is at work does so
    /// for good reason.
    fn rested(&self, read: &Arc<VolumeAttachment>, queue: &Handle<Key>, key: &Key) -> bool {
        let now = self.attachments.store().get(key);
        queue.snapshot(key).is_none() && now.is_some_and(|now| Arc::ptr_eq(&now, read))
    }

    /// The nodes of each volume that the driver lists.
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

    /// The volume's handle and the node's id, as the driver knows them.
    fn place(&self, attachment: &VolumeAttachment) -> Result<(String, String), Refusal> {
        let node = self.attached_node_id(attachment)?;
        Ok((self.attached_volume(attachment)?.handle, node))
    }
}
