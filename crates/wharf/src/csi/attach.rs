use clap::Args;
use wharf_proto::csi::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest};

use super::{
    access::Access,
    failure::Failure,
    need::{ControllerRpc, Need},
    pair::{self, Pair},
    report::Report,
    session::Session,
};

/// Attaches a volume to a node (ControllerPublishVolume)
///
/// Pass the publish_context of its answer to stage and mount as --publish-context.
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi publish ID --node node-1")]
pub(crate) struct Publish {
    /// The volume_id
    id: String,
    /// The node_id, as `wharf csi info` shows it
    #[arg(long, value_name = "NODE")]
    node: String,
    /// Attach the volume read-only
    #[arg(long)]
    readonly: bool,
    #[command(flatten)]
    access: Access,
    /// An entry of the volume's volume_context
    #[arg(long, value_name = "KEY=VALUE")]
    context: Vec<Pair>,
}

impl Publish {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "ControllerPublishVolume";
        let mut needs = vec![Need::Controller(ControllerRpc::PublishUnpublishVolume)];
        needs.extend(self.readonly.then_some(Need::Controller(ControllerRpc::PublishReadonly)));
        needs.extend(self.access.controller_needs());
        session.require(rpc, &needs).await?;
        let request = ControllerPublishVolumeRequest {
            volume_id: self.id.clone(),
            node_id: self.node.clone(),
            volume_capability: Some(self.access.capability()),
            readonly: self.readonly,
            secrets: session.secrets.get(),
            volume_context: pair::map(self.context),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().controller_publish_volume(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer)
            .note(format!("Volume {} is attached to {}.", self.id, self.node)))
    }
}

/// Detaches a volume from a node, or from all (ControllerUnpublishVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi unpublish ID --node node-1")]
pub(crate) struct Unpublish {
    /// The volume_id
    id: String,
    /// The node_id. Default: all nodes
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

impl Unpublish {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "ControllerUnpublishVolume";
        session.require(rpc, &[Need::Controller(ControllerRpc::PublishUnpublishVolume)]).await?;
        let from = self.node.clone().unwrap_or_else(|| "all nodes".to_owned());
        let request = ControllerUnpublishVolumeRequest {
            volume_id: self.id.clone(),
            node_id: self.node.unwrap_or_default(),
            secrets: session.secrets.get(),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().controller_unpublish_volume(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer)
            .sentence(format!("Volume {} is detached from {from}.", self.id)))
    }
}
