//! The Identity service.

use std::sync::Arc;

use tonic::Status;
use wharf_proto::{
    csi,
    csi::{
        identity_server::Identity,
        plugin_capability::{Service, Type, VolumeExpansion, volume_expansion},
    },
};

use super::{Core, rpcs};
use crate::{readiness::Ready, types::ExpansionMode};

pub(crate) struct IdentityService(pub(crate) Arc<Core>);

impl Identity for IdentityService {
    rpcs! { "Identity":
        get_plugin_info: GetPluginInfoRequest -> GetPluginInfoResponse,
        get_plugin_capabilities: GetPluginCapabilitiesRequest -> GetPluginCapabilitiesResponse,
        probe: ProbeRequest -> ProbeResponse,
    }
}

impl Core {
    async fn get_plugin_info(
        &self,
        _: csi::GetPluginInfoRequest,
    ) -> Result<csi::GetPluginInfoResponse, Status> {
        Ok(csi::GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: self.vendor_version.clone(),
            manifest: self.manifest.clone(),
        })
    }

    /// Returns the same capabilities on every socket, whichever services the socket has.
    async fn get_plugin_capabilities(
        &self,
        _: csi::GetPluginCapabilitiesRequest,
    ) -> Result<csi::GetPluginCapabilitiesResponse, Status> {
        let services = self.parts.services().map(|it| Type::Service(Service { r#type: it.into() }));
        let expansion = self.parts.volume_expansion().map(|mode| {
            let mode = match mode {
                ExpansionMode::Online => volume_expansion::Type::Online,
                ExpansionMode::Offline => volume_expansion::Type::Offline,
            };
            Type::VolumeExpansion(VolumeExpansion { r#type: mode.into() })
        });
        let capabilities = services.chain(expansion);
        let capabilities =
            capabilities.map(|it| csi::PluginCapability { r#type: Some(it) }).collect();
        Ok(csi::GetPluginCapabilitiesResponse { capabilities })
    }

    async fn probe(&self, _: csi::ProbeRequest) -> Result<csi::ProbeResponse, Status> {
        match self.readiness.state() {
            Ready::Starting => Ok(csi::ProbeResponse { ready: Some(false) }),
            Ready::Yes => Ok(csi::ProbeResponse { ready: Some(true) }),
            Ready::Failing(reason) => {
                let reason =
                    if reason.is_empty() { "the driver is failing".into() } else { reason };
                Err(Status::failed_precondition(reason))
            }
        }
    }
}
