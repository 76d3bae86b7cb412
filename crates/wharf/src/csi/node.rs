use clap::Args;
use wharf_proto::csi::{
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest,
};

use super::{
    access::Access,
    failure::Failure,
    need::{Need, NodeRpc},
    pair::{self, Pair},
    report::Report,
    session::Session,
};

/// Answers of the controller that the node's calls need.
#[derive(Args)]
struct Contexts {
    /// An entry of the volume_context in the answer to create
    #[arg(long, value_name = "KEY=VALUE")]
    context: Vec<Pair>,
    /// An entry of the publish_context in the answer to publish
    #[arg(long, value_name = "KEY=VALUE")]
    publish_context: Vec<Pair>,
}

/// Stages a volume on this node, once for all pods that use it (NodeStageVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi stage ID --path /mnt/staging --fs ext4")]
pub(crate) struct Stage {
    /// The volume_id
    id: String,
    /// The staging_target_path: an existing folder
    #[arg(long, value_name = "DIR")]
    path: String,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    contexts: Contexts,
}

impl Stage {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "NodeStageVolume";
        let mut needs = vec![Need::Node(NodeRpc::StageUnstageVolume)];
        needs.extend(self.access.node_needs());
        session.require(rpc, &needs).await?;
        let request = NodeStageVolumeRequest {
            volume_id: self.id.clone(),
            publish_context: pair::map(self.contexts.publish_context),
            staging_target_path: self.path.clone(),
            volume_capability: Some(self.access.capability()),
            secrets: session.secrets.get(),
            volume_context: pair::map(self.contexts.context),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.node().node_stage_volume(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer)
            .sentence(format!("Volume {} is staged at {}.", self.id, self.path)))
    }
}

/// Undoes stage (NodeUnstageVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi unstage ID --path /mnt/staging")]
pub(crate) struct Unstage {
    /// The volume_id
    id: String,
    /// The staging_target_path
    #[arg(long, value_name = "DIR")]
    path: String,
}

impl Unstage {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "NodeUnstageVolume";
        session.require(rpc, &[Need::Node(NodeRpc::StageUnstageVolume)]).await?;
        let request = NodeUnstageVolumeRequest {
            volume_id: self.id.clone(),
            staging_target_path: self.path.clone(),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.node().node_unstage_volume(request).await
            })
            .await?;
        let note = format!("Volume {} is no longer staged at {}.", self.id, self.path);
        Ok(Report::of(rpc, &answer).sentence(note))
    }
}

/// Mounts a volume, or its block device, at a path for one pod (NodePublishVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi mount ID --staging /mnt/staging --target /mnt/data")]
pub(crate) struct Mount {
    /// The volume_id
    id: String,
    /// The target_path, which the driver creates in an existing folder
    #[arg(long, value_name = "PATH")]
    target: String,
    /// The staging_target_path, where the volume was staged
    #[arg(long, value_name = "DIR")]
    staging: Option<String>,
    /// Mount the volume read-only
    #[arg(long)]
    readonly: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    contexts: Contexts,
}

impl Mount {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "NodePublishVolume";
        let staged = self.staging.is_some().then_some(Need::Node(NodeRpc::StageUnstageVolume));
        let needs: Vec<Need> = staged.into_iter().chain(self.access.node_needs()).collect();
        session.require(rpc, &needs).await?;
        let request = NodePublishVolumeRequest {
            volume_id: self.id.clone(),
            publish_context: pair::map(self.contexts.publish_context),
            staging_target_path: self.staging.unwrap_or_default(),
            target_path: self.target.clone(),
            volume_capability: Some(self.access.capability()),
            readonly: self.readonly,
            secrets: session.secrets.get(),
            volume_context: pair::map(self.contexts.context),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.node().node_publish_volume(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer).sentence(format!("Volume {} is at {}.", self.id, self.target)))
    }
}

/// Undoes mount (NodeUnpublishVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi umount ID --target /mnt/data")]
pub(crate) struct Umount {
    /// The volume_id
    id: String,
    /// The target_path
    #[arg(long, value_name = "PATH")]
    target: String,
}

impl Umount {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "NodeUnpublishVolume";
        let request = NodeUnpublishVolumeRequest {
            volume_id: self.id.clone(),
            target_path: self.target.clone(),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.node().node_unpublish_volume(request).await
            })
            .await?;
        let note = format!("Volume {} is no longer at {}.", self.id, self.target);
        Ok(Report::of(rpc, &answer).sentence(note))
    }
}
