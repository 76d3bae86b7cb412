use clap::{Args, Subcommand};
use wharf_proto::csi::{
    CreateVolumeGroupSnapshotRequest, DeleteVolumeGroupSnapshotRequest,
    GetVolumeGroupSnapshotRequest,
};

use super::{
    failure::Failure,
    need::{GroupRpc, Need},
    pair::{self, Pair},
    report::Report,
    session::Session,
};

/// The capability that all three calls need.
const NEEDS: &[Need] = &[Need::Group(GroupRpc::CreateDeleteGetVolumeGroupSnapshot)];

#[derive(Subcommand)]
pub(crate) enum Group {
    Create(Create),
    Get(Get),
    Rm(Rm),
}

impl Group {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        match self {
            Self::Create(command) => command.run(session).await,
            Self::Get(command) => command.run(session).await,
            Self::Rm(command) => command.run(session).await,
        }
    }
}

/// Creates snapshots of several volumes at one moment (CreateVolumeGroupSnapshot)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi group create nightly --volume ID --volume ID")]
pub(crate) struct Create {
    /// Name of the request: the driver recognizes a repeated one by it
    name: String,
    /// One of the source_volume_ids
    #[arg(long = "volume", value_name = "ID", required = true)]
    volumes: Vec<String>,
    /// A parameter of the VolumeGroupSnapshotClass
    #[arg(long = "param", value_name = "KEY=VALUE")]
    params: Vec<Pair>,
}

impl Create {
    async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "CreateVolumeGroupSnapshot";
        session.require(rpc, NEEDS).await?;
        let request = CreateVolumeGroupSnapshotRequest {
            name: self.name,
            source_volume_ids: self.volumes,
            secrets: session.secrets.get(),
            parameters: pair::map(self.params),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.group_controller().create_volume_group_snapshot(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer))
    }
}

/// Shows a group snapshot (GetVolumeGroupSnapshot)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi group get ID --snapshot ID --snapshot ID")]
pub(crate) struct Get {
    /// The group_snapshot_id
    id: String,
    /// A snapshot that the group must contain
    #[arg(long = "snapshot", value_name = "ID")]
    snapshots: Vec<String>,
}

impl Get {
    async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "GetVolumeGroupSnapshot";
        session.require(rpc, NEEDS).await?;
        let request = GetVolumeGroupSnapshotRequest {
            group_snapshot_id: self.id,
            snapshot_ids: self.snapshots,
            secrets: session.secrets.get(),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.group_controller().get_volume_group_snapshot(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer))
    }
}

/// Deletes a group snapshot with all of its snapshots (DeleteVolumeGroupSnapshot)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi group rm ID --snapshot ID --snapshot ID")]
pub(crate) struct Rm {
    /// The group_snapshot_id
    id: String,
    /// A snapshot of the group. CSI requires all of them
    #[arg(long = "snapshot", value_name = "ID")]
    snapshots: Vec<String>,
}

impl Rm {
    async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "DeleteVolumeGroupSnapshot";
        session.require(rpc, NEEDS).await?;
        let request = DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: self.id.clone(),
            snapshot_ids: self.snapshots,
            secrets: session.secrets.get(),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.group_controller().delete_volume_group_snapshot(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer).sentence(format!("Group snapshot {} is deleted.", self.id)))
    }
}
