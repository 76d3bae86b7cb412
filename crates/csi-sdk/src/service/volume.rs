//! Volume RPCs of the Controller service.

use tonic::Status;
use wharf_proto::csi;

use super::{Core, accept, check_id, compare};
use crate::{
    error::Failure,
    paging::Page,
    parts::offered,
    request::{
        ControllerExpandVolume, ControllerModifyVolume, ControllerPublishVolume,
        ControllerUnpublishVolume, CreateVolume, DeleteVolume, GetCapacity,
        ValidateVolumeCapabilities, volume_id,
    },
    types::{ContentSource, Sources, Validation, VolumeEntry, signed},
};

const MAX_ID: usize = 128;

impl Core {
    pub(super) async fn create_volume(
        &self,
        wire: csi::CreateVolumeRequest,
    ) -> Result<csi::CreateVolumeResponse, Status> {
        let volumes = offered(&self.parts.volumes, "CreateVolume")?;
        let accepted = accept::<_, CreateVolume>("CreateVolume", wire)?;
        let request = &accepted.request;
        check_source(request, volumes.sources())?;
        for (index, capability) in request.capabilities.iter().enumerate() {
            self.check_mode(&format!("volume_capabilities[{index}]"), capability)?;
        }
        if self.parts.modification.is_none() && !request.mutable_parameters.is_empty() {
            return Err(Failure::invalid("mutable_parameters", NOT_MODIFIED).into());
        }
        self.operate(accepted, |request: CreateVolume| async move {
            let source = request.source.clone();
            let mut volume = match volumes.existing(&request.name).await? {
                Some(existing) => compare::volume(existing, &request)?,
                None => volumes.create(request).await?,
            };
            check_id("volume ID", &volume.id, MAX_ID)?;
            volume.source = volume.source.or(source);
            Ok(csi::CreateVolumeResponse { volume: Some(volume.into()) })
        })
        .await
    }

    pub(super) async fn delete_volume(
        &self,
        wire: csi::DeleteVolumeRequest,
    ) -> Result<csi::DeleteVolumeResponse, Status> {
        let volumes = offered(&self.parts.volumes, "DeleteVolume")?;
        let accepted = accept("DeleteVolume", wire)?;
        self.operate(accepted, |request: DeleteVolume| async move {
            volumes.delete(request).await?;
            Ok(csi::DeleteVolumeResponse {})
        })
        .await
    }

    pub(super) async fn controller_publish_volume(
        &self,
        wire: csi::ControllerPublishVolumeRequest,
    ) -> Result<csi::ControllerPublishVolumeResponse, Status> {
        let attachments = offered(&self.parts.attachments, "ControllerPublishVolume")?;
        let accepted = accept::<_, ControllerPublishVolume>("ControllerPublishVolume", wire)?;
        self.check_mode("volume_capability", &accepted.request.capability)?;
        if accepted.request.read_only && !attachments.honors_read_only() {
            let expected = "false: this driver does not offer PUBLISH_READONLY";
            return Err(Failure::invalid("readonly", expected).into());
        }
        self.operate(accepted, |request: ControllerPublishVolume| async move {
            let publish_context = attachments.publish(request).await?;
            Ok(csi::ControllerPublishVolumeResponse { publish_context })
        })
        .await
    }

    pub(super) async fn controller_unpublish_volume(
        &self,
        wire: csi::ControllerUnpublishVolumeRequest,
    ) -> Result<csi::ControllerUnpublishVolumeResponse, Status> {
        let attachments = offered(&self.parts.attachments, "ControllerUnpublishVolume")?;
        let accepted = accept("ControllerUnpublishVolume", wire)?;
        self.operate(accepted, |request: ControllerUnpublishVolume| async move {
            attachments.unpublish(request).await?;
            Ok(csi::ControllerUnpublishVolumeResponse {})
        })
        .await
    }

    pub(super) async fn controller_expand_volume(
        &self,
        wire: csi::ControllerExpandVolumeRequest,
    ) -> Result<csi::ControllerExpandVolumeResponse, Status> {
        let expansion = offered(&self.parts.expansion, "ControllerExpandVolume")?;
        let accepted = accept("ControllerExpandVolume", wire)?;
        self.operate(accepted, |request: ControllerExpandVolume| async move {
            let expanded = expansion.expand(request).await?;
            Ok(csi::ControllerExpandVolumeResponse {
                capacity_bytes: signed(expanded.capacity),
                node_expansion_required: expanded.node_expansion_required,
            })
        })
        .await
    }

    pub(super) async fn controller_modify_volume(
        &self,
        wire: csi::ControllerModifyVolumeRequest,
    ) -> Result<csi::ControllerModifyVolumeResponse, Status> {
        let modification = offered(&self.parts.modification, "ControllerModifyVolume")?;
        let accepted = accept("ControllerModifyVolume", wire)?;
        self.operate(accepted, |request: ControllerModifyVolume| async move {
            modification.modify(request).await?;
            Ok(csi::ControllerModifyVolumeResponse {})
        })
        .await
    }

    pub(super) async fn validate_volume_capabilities(
        &self,
        wire: csi::ValidateVolumeCapabilitiesRequest,
    ) -> Result<csi::ValidateVolumeCapabilitiesResponse, Status> {
        use csi::validate_volume_capabilities_response::Confirmed;
        let volumes = offered(&self.parts.volumes, "ValidateVolumeCapabilities")?;
        let confirmed = Confirmed {
            volume_context: wire.volume_context.clone(),
            volume_capabilities: wire.volume_capabilities.clone(),
            parameters: wire.parameters.clone(),
            mutable_parameters: wire.mutable_parameters.clone(),
        };
        let accepted = accept::<_, ValidateVolumeCapabilities>("ValidateVolumeCapabilities", wire)?;
        let mut modes = accepted.request.capabilities.iter();
        let refused = modes.find_map(|it| self.check_mode("volume_capabilities", it).err());
        let refused = refused.map(|status| status.message().to_owned());
        // Call the driver in any case: an unknown volume is an error.
        let validation = match (volumes.validate(accepted.request).await?, refused) {
            (Validation::Confirmed, Some(refused)) => Validation::Unsupported(refused),
            (validation, _) => validation,
        };
        let (confirmed, message) = match validation {
            Validation::Confirmed => (Some(confirmed), String::new()),
            Validation::Unsupported(message) => (None, message),
        };
        Ok(csi::ValidateVolumeCapabilitiesResponse { confirmed, message })
    }

    pub(super) async fn list_volumes(
        &self,
        wire: csi::ListVolumesRequest,
    ) -> Result<csi::ListVolumesResponse, Status> {
        use csi::list_volumes_response::{Entry, VolumeStatus};
        let list = offered(&self.parts.volume_list, "ListVolumes")?;
        let page = Page::new(wire.max_entries, &wire.starting_token)?;
        let entries = list.list(page.after(), page.ask()).await?;
        let (entries, next_token) = page.cut(entries, |entry| &entry.volume.id)?;
        let (nodes, conditions) = (self.parts.lists_published_nodes(), list.shows_condition());
        let entries = entries.into_iter().map(|entry| {
            let (volume, published_node_ids, volume_condition) = shown(entry, nodes, conditions);
            let status = VolumeStatus { published_node_ids, volume_condition };
            let status = (nodes || conditions).then_some(status);
            Entry { volume: Some(volume), status }
        });
        Ok(csi::ListVolumesResponse { entries: entries.collect(), next_token })
    }

    pub(super) async fn controller_get_volume(
        &self,
        wire: csi::ControllerGetVolumeRequest,
    ) -> Result<csi::ControllerGetVolumeResponse, Status> {
        use csi::controller_get_volume_response::VolumeStatus;
        let lookup = offered(&self.parts.volume_lookup, "ControllerGetVolume")?;
        let entry = lookup.get(volume_id(wire.volume_id)?).await?;
        let (volume, published_node_ids, volume_condition) =
            shown(entry, true, lookup.shows_condition());
        let status = VolumeStatus { published_node_ids, volume_condition };
        Ok(csi::ControllerGetVolumeResponse { volume: Some(volume), status: Some(status) })
    }

    pub(super) async fn get_capacity(
        &self,
        wire: csi::GetCapacityRequest,
    ) -> Result<csi::GetCapacityResponse, Status> {
        let capacity = offered(&self.parts.capacity, "GetCapacity")?;
        let accepted = accept::<_, GetCapacity>("GetCapacity", wire)?;
        let capacity = capacity.available(accepted.request).await?;
        Ok(csi::GetCapacityResponse {
            available_capacity: signed(capacity.available),
            maximum_volume_size: capacity.maximum_volume_size.map(signed),
            minimum_volume_size: capacity.minimum_volume_size.map(signed),
        })
    }
}

const NOT_MODIFIED: &str = "none: this driver does not offer MODIFY_VOLUME";

fn check_source(request: &CreateVolume, sources: Sources) -> Result<(), Status> {
    let refused = match &request.source {
        Some(ContentSource::Snapshot(_)) if !sources.snapshot => "snapshot",
        Some(ContentSource::Volume(_)) if !sources.volume => "volume",
        _ => return Ok(()),
    };
    let field = format!("volume_content_source.{refused}");
    let expected = format!("no {refused}: this driver does not create volumes from a {refused}");
    Err(Failure::invalid(field, expected).into())
}

/// Converts an entry, leaving out fields that the driver does not declare.
fn shown(
    entry: VolumeEntry,
    nodes: bool,
    condition: bool,
) -> (csi::Volume, Vec<String>, Option<csi::VolumeCondition>) {
    let published = entry.published_nodes.into_iter().filter(|_| nodes).map(Into::into);
    let condition = entry.condition.filter(|_| condition).map(Into::into);
    (entry.volume.into(), published.collect(), condition)
}
