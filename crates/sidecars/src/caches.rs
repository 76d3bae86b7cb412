use std::sync::Arc;

use kube::Client;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{CsiNode, PersistentVolume, Store, VolumeAttachment, Watch};
use wharf_facts::{annotation, finalizer};

/// What the controllers of one driver know of the cluster. Objects that concern other drivers only are not kept.
#[derive(Clone, Debug)]
pub struct Caches {
    /// Attachments that the driver is to make, on all nodes.
    pub attachments: Arc<Store<VolumeAttachment>>,
    /// The driver's volumes, and in-tree ones that carry its marks.
    pub volumes: Arc<Store<PersistentVolume>>,
    /// All nodes, with this driver's entry if they have one.
    pub nodes: Arc<Store<CsiNode>>,
}

impl Caches {
    /// Empty caches for the objects of `driver`.
    pub fn of(driver: &str) -> Self {
        let name: Arc<str> = driver.into();
        Self {
            attachments: Store::new({
                let name = Arc::clone(&name);
                move |attachment: &mut VolumeAttachment| attachment.spec.attacher == *name
            }),
            volumes: Store::new({
                let (name, finalizer) = (Arc::clone(&name), finalizer::attacher(driver));
                move |volume| is_of(volume, &name, &finalizer)
            }),
            nodes: Store::new(move |node: &mut CsiNode| {
                node.spec.drivers.retain(|driver| driver.name == *name);
                node.spec.drivers.shrink_to_fit();
                true
            }),
        }
    }

    /// Keeps them as the API is, with one watch for each kind, until it is told to stop.
    pub async fn run(&self, client: &Client, stop: &CancellationToken) {
        tokio::join!(
            Watch::new(client.clone(), Arc::clone(&self.attachments)).run(stop.clone()),
            Watch::new(client.clone(), Arc::clone(&self.volumes)).run(stop.clone()),
            Watch::new(client.clone(), Arc::clone(&self.nodes)).run(stop.clone()),
        );
    }

    /// Waits until each has seen all that there is.
    pub async fn synced(&self) {
        tokio::join!(self.attachments.synced(), self.volumes.synced(), self.nodes.synced());
    }
}

fn is_of(volume: &PersistentVolume, driver: &str, finalizer: &str) -> bool {
    match &volume.spec.csi {
        Some(csi) => csi.driver == driver,
        None => {
            let migrated = volume.metadata.annotations.get(annotation::MIGRATED_TO);
            migrated.is_some_and(|to| to == driver) || volume.metadata.has_finalizer(finalizer)
        }
    }
}
