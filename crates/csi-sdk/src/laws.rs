//! Laws that csi-sanity does not check, as functions for the tests of any driver.
//!
//! A [`Subject`] is a running driver. Each law calls it as an orchestrator would, on volumes that
//! the law creates and deletes, and returns a [`Breach`] if the driver breaks the law.

mod concurrency;
mod fields;
mod groups;
mod paging;
mod secrets;
mod sizes;

use std::fmt;

use tonic::{Code, Status};
use wharf_proto::{csi, csi::controller_client::ControllerClient};
use wharf_uds::Channel;

pub use secrets::PLANTED_SECRET;

use crate::types::Parameters;

/// A driver under test.
#[derive(Clone)]
pub struct Subject {
    /// Channel to the socket of the Controller service.
    pub controller: Channel,
    /// Channel to the socket of the Node service; may be the same.
    pub node: Channel,
    /// Capability of the test volumes.
    pub capability: csi::VolumeCapability,
    /// Size of the test volumes in bytes. The driver must allow twice this size, too.
    pub size: i64,
    /// Parameters of the test volumes.
    pub parameters: Parameters,
}

impl Subject {
    /// A driver with one socket, tested with mounted volumes.
    pub fn new(channel: Channel, size: i64) -> Self {
        use csi::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
        let capability = csi::VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        };
        let parameters = Parameters::new();
        Self { controller: channel.clone(), node: channel, capability, size, parameters }
    }

    /// Checks all laws but that of secrets, which needs the driver's log: see
    /// [`plant_secrets`](Subject::plant_secrets).
    pub async fn keeps_all_laws(&self) -> Result<(), Breach> {
        self.requires_required_fields().await?;
        self.joins_the_same_create().await?;
        self.serialises_conflicts().await?;
        self.deletes_groups_by_their_members().await?;
        self.rounds_sizes_up().await?;
        self.pages_survive_deletes().await
    }

    fn volume(&self, name: &str, size: i64) -> csi::CreateVolumeRequest {
        csi::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(csi::CapacityRange { required_bytes: size, limit_bytes: size }),
            volume_capabilities: vec![self.capability.clone()],
            parameters: self.parameters.clone(),
            ..Default::default()
        }
    }

    async fn create(&self, request: csi::CreateVolumeRequest) -> Result<String, Status> {
        let created = self.controllers().create_volume(request).await?.into_inner();
        Ok(created.volume.unwrap_or_default().volume_id)
    }

    async fn delete(&self, volume_id: String) -> Result<(), Status> {
        let request = csi::DeleteVolumeRequest { volume_id, ..Default::default() };
        self.controllers().delete_volume(request).await.map(drop)
    }

    fn controllers(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.controller.clone())
    }
}

/// The violation of a law.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{law}: {what}")]
pub struct Breach {
    law: &'static str,
    what: String,
}

impl Breach {
    fn new(law: &'static str, what: impl fmt::Display) -> Self {
        Self { law, what: what.to_string() }
    }
}

fn describe(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

/// Whether the driver does not implement the RPC.
fn is_missing(status: &Status) -> bool {
    status.code() == Code::Unimplemented
}
