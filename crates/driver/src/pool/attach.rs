//! Publications of volumes to nodes by the controller: only records, since a local volume needs no
//! attaching.

use super::Pool;
use crate::{
    error::Error,
    points::Point,
    record::{Attachment, Node, Volume},
};

impl Pool {
    /// Registers a node that volumes can be published to.
    ///
    /// # Errors
    /// If the state cannot be written.
    pub fn register_node(&self, id: &str) -> Result<(), Error> {
        let node = Node { id: id.to_owned() };
        let known = self.store.read(|state| state.nodes.get(&node.id).is_some());
        if known {
            return Ok(());
        }
        self.store.update(move |draft| {
            draft.put(node);
            Ok(())
        })
    }

    /// Publishes a volume to a node, if `room` allows it. Idempotent.
    ///
    /// # Errors
    /// If the volume is published in another way or to another node; otherwise the error of `room`.
    pub fn attach(
        &self,
        id: &str,
        node: &str,
        attachment: Attachment,
        room: Result<(), Error>,
    ) -> Result<(), Error> {
        let (id, node) = (id.to_owned(), node.to_owned());
        self.store.update(move |draft| {
            let volume = draft.volumes.get(&id).filter(|volume| volume.is_whole());
            let volume = volume.ok_or_else(|| Error::no_volume(&id))?;
            if let Some(there) = volume.attachments.get(&node) {
                if *there == attachment {
                    return Ok(());
                }
                return Err(Error::Exists(format!(
                    "volume {id} is published to node {node} for another use: unpublish it first"
                )));
            }
            if let Some(other) = volume.attachments.keys().next()
                && !attachment.usage.mode.is_multi_node()
            {
                return Err(Error::Precondition(format!(
                    "volume {id} is published to node {other}: unpublish it there first"
                )));
            }
            room?;
            draft.edit(&id, |volume: &mut Volume| {
                volume.attachments.insert(node, attachment);
            });
            Ok(())
        })?;
        self.reach(Point::AttachKept)
    }

    /// Removes the publication of a volume to one node, or to all. Idempotent, also for a volume
    /// that does not exist.
    ///
    /// # Errors
    /// If the state cannot be written.
    pub fn detach(&self, id: &str, node: Option<String>) -> Result<(), Error> {
        let id = id.to_owned();
        self.store.update(move |draft| {
            draft.edit(&id, |volume: &mut Volume| match node {
                Some(node) => drop(volume.attachments.remove(&node)),
                None => volume.attachments.clear(),
            });
            Ok::<_, Error>(())
        })?;
        self.reach(Point::DetachKept)
    }
}
