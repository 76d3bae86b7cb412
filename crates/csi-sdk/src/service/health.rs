//! Health RPCs of the Controller and Node services.

use tonic::Status;
use wharf_proto::csi;

use super::{Core, accept};
use crate::{
    paging::Page,
    parts::offered,
    request::{NodeGetVolumeHealth, volume_id},
    types::{Secrets, volume_health},
};

impl Core {
    pub(super) async fn controller_get_volume_health(
        &self,
        wire: csi::ControllerGetVolumeHealthRequest,
    ) -> Result<csi::ControllerGetVolumeHealthResponse, Status> {
        let health = offered(&self.parts.volume_health, "ControllerGetVolumeHealth")?;
        let volume = volume_id(wire.volume_id)?;
        let problems = health.get(volume.clone()).await?;
        let volume_health = Some(volume_health(volume, problems));
        Ok(csi::ControllerGetVolumeHealthResponse { volume_health })
    }

    pub(super) async fn controller_list_volume_health(
        &self,
        wire: csi::ControllerListVolumeHealthRequest,
    ) -> Result<csi::ControllerListVolumeHealthResponse, Status> {
        let health = offered(&self.parts.volume_health, "ControllerListVolumeHealth")?;
        let page = Page::new(wire.max_entries, &wire.starting_token)?;
        let entries = health.list(page.after(), page.ask()).await?;
        let (entries, next_token) = page.cut(entries, |entry| &entry.volume)?;
        let entries = entries.into_iter().map(|it| volume_health(it.volume, it.problems)).collect();
        Ok(csi::ControllerListVolumeHealthResponse { entries, next_token })
    }

    pub(super) async fn node_get_volume_health(
        &self,
        wire: csi::NodeGetVolumeHealthRequest,
    ) -> Result<csi::NodeGetVolumeHealthResponse, Status> {
        let health = offered(&self.parts.node_volume_health, "NodeGetVolumeHealth")?;
        let request = accept::<_, NodeGetVolumeHealth>("NodeGetVolumeHealth", wire)?.request;
        let volume = request.volume.clone();
        let problems = health.health(request).await?;
        let volume_health = Some(volume_health(volume, problems));
        Ok(csi::NodeGetVolumeHealthResponse { volume_health })
    }

    pub(super) async fn node_get_storage_health(
        &self,
        wire: csi::NodeGetStorageHealthRequest,
    ) -> Result<csi::NodeGetStorageHealthResponse, Status> {
        let health = offered(&self.parts.storage_health, "NodeGetStorageHealth")?;
        let problems = health.health(Secrets::from(wire.secrets)).await?;
        let backend_health = problems.into_iter().map(Into::into).collect();
        Ok(csi::NodeGetStorageHealthResponse { backend_health })
    }
}
