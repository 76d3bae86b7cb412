use clap::Args;
use wharf_facts::quantity;
use wharf_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, ControllerModifyVolumeRequest,
    NodeExpandVolumeRequest,
};

use super::{
    access::Access,
    failure::Failure,
    need::{ControllerRpc, Need, NodeRpc},
    pair::{self, Pair},
    report::Report,
    session::Session,
};

/// Expands a volume, and shows whether the node must expand it, too (ControllerExpandVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi expand ID --size 2Gi")]
pub(crate) struct Expand {
    /// The volume_id
    id: String,
    /// At least this large: 64Mi, 1Gi, 1G or bytes
    #[arg(long, value_parser = quantity::parse)]
    size: i64,
    /// At most this large
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse)]
    limit: Option<i64>,
    #[command(flatten)]
    access: Access,
}

impl Expand {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "ControllerExpandVolume";
        let mut needs = vec![Need::Controller(ControllerRpc::ExpandVolume)];
        needs.extend(self.access.controller_needs());
        session.require(rpc, &needs).await?;
        let request = ControllerExpandVolumeRequest {
            volume_id: self.id.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: self.size,
                limit_bytes: self.limit.unwrap_or_default(),
            }),
            secrets: session.secrets.get(),
            volume_capability: Some(self.access.capability()),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().controller_expand_volume(request).await
            })
            .await?;
        let note = match answer.node_expansion_required {
            true => format!("The node must expand it, too: wharf csi grow {} --path PATH", self.id),
            false => "The volume is expanded. The node need not expand it.".to_owned(),
        };
        Ok(Report::of(rpc, &answer).note(note))
    }
}

/// Grows the filesystem or device on this node after expand (NodeExpandVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi grow ID --path /mnt/data")]
pub(crate) struct Grow {
    /// The volume_id
    id: String,
    /// The volume_path: where it is mounted or staged
    #[arg(long, value_name = "PATH")]
    path: String,
    /// At least this large. Default: the size of the volume
    #[arg(long, value_parser = quantity::parse)]
    size: Option<i64>,
    /// The staging_target_path, where the volume was staged
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    staging: String,
    #[command(flatten)]
    access: Access,
}

impl Grow {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "NodeExpandVolume";
        let mut needs = vec![Need::Node(NodeRpc::ExpandVolume)];
        needs.extend(self.access.node_needs());
        session.require(rpc, &needs).await?;
        let request = NodeExpandVolumeRequest {
            volume_id: self.id,
            volume_path: self.path,
            capacity_range: self
                .size
                .map(|required_bytes| CapacityRange { required_bytes, limit_bytes: 0 }),
            staging_target_path: self.staging,
            volume_capability: Some(self.access.capability()),
            secrets: session.secrets.get(),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.node().node_expand_volume(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer))
    }
}

/// Changes the mutable parameters of a volume (ControllerModifyVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi modify ID --mutable wiops=500")]
pub(crate) struct Modify {
    /// The volume_id
    id: String,
    /// A parameter and its new value. Other parameters do not change
    #[arg(long, value_name = "KEY=VALUE", required = true)]
    mutable: Vec<Pair>,
}

impl Modify {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "ControllerModifyVolume";
        session.require(rpc, &[Need::Controller(ControllerRpc::ModifyVolume)]).await?;
        let request = ControllerModifyVolumeRequest {
            volume_id: self.id.clone(),
            secrets: session.secrets.get(),
            mutable_parameters: pair::map(self.mutable),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().controller_modify_volume(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer).sentence(format!("Volume {} is modified.", self.id)))
    }
}
