//! The driver's answers about its node. Nothing is mounted here.

use wharf_csi_sdk::prelude::*;

use super::Service;

#[async_trait]
impl Node for Service {
    async fn info(&self) -> Result<NodeInfo, Failure> {
        Ok(NodeInfo { topology: self.place.clone(), ..NodeInfo::new(self.door.as_str()) })
    }

    async fn publish(&self, _: NodePublishVolume) -> Result<(), NodePublishVolumeError> {
        Err(Failure::Unavailable("there is no kubelet".to_owned()).into())
    }

    async fn unpublish(&self, _: NodeUnpublishVolume) -> Result<(), NodeUnpublishVolumeError> {
        Err(Failure::Unavailable("there is no kubelet".to_owned()).into())
    }
}
