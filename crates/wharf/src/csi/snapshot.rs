use clap::{Args, Subcommand};
use wharf_proto::csi::{
    CreateSnapshotRequest, DeleteSnapshotRequest, GetSnapshotRequest, ListSnapshotsRequest,
    ListSnapshotsResponse, TopologyRequirement,
};

use super::{
    failure::Failure,
    need::{ControllerRpc, Need, Service},
    paging::{Answer, Page},
    pair::{self, Pair},
    report::{Column, Report},
    session::Session,
};

const SNAPSHOTS: &[Column] = &[
    ("ID", "/snapshot/snapshot_id"),
    ("VOLUME", "/snapshot/source_volume_id"),
    ("SIZE", "/snapshot/size_bytes"),
    ("CREATED", "/snapshot/creation_time"),
    ("READY", "/snapshot/ready_to_use"),
    ("GROUP", "/snapshot/group_snapshot_id"),
];

#[derive(Subcommand)]
pub(crate) enum Snap {
    Create(Create),
    Ls(Ls),
    Get(Get),
    Rm(Rm),
}

impl Snap {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        match self {
            Self::Create(command) => command.run(session).await,
            Self::Ls(command) => command.run(session).await,
            Self::Get(command) => command.run(session).await,
            Self::Rm(command) => command.run(session).await,
        }
    }
}

/// Creates a snapshot of a volume, or finds the one of this name (CreateSnapshot)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi snap create before-upgrade --volume ID")]
pub(crate) struct Create {
    /// Name of the request: the driver recognizes a repeated one by it
    name: String,
    /// The source_volume_id
    #[arg(long, value_name = "ID")]
    volume: String,
    /// A parameter of the VolumeSnapshotClass
    #[arg(long = "param", value_name = "KEY=VALUE")]
    params: Vec<Pair>,
    /// A topology segment from which the snapshot must be accessible
    #[arg(long, value_name = "KEY=VALUE")]
    topology: Vec<Pair>,
}

impl Create {
    async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "CreateSnapshot";
        let mut needs = vec![Need::Controller(ControllerRpc::CreateDeleteSnapshot)];
        if !self.topology.is_empty() {
            needs.push(Need::Plugin(Service::SnapshotAccessibilityConstraints));
        }
        session.require(rpc, &needs).await?;
        let place = pair::topology(self.topology).map(|place| TopologyRequirement {
            requisite: vec![place.clone()],
            preferred: vec![place],
        });
        let request = CreateSnapshotRequest {
            source_volume_id: self.volume,
            name: self.name,
            secrets: session.secrets.get(),
            parameters: pair::map(self.params),
            accessibility_requirements: place,
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().create_snapshot(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer))
    }
}

/// Lists the snapshots of the driver, all pages of them (ListSnapshots)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi snap ls --volume ID")]
pub(crate) struct Ls {
    /// Only snapshots of this volume
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    volume: String,
    /// Only the snapshot with this snapshot_id
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    id: String,
    #[command(flatten)]
    page: Page,
}

impl Ls {
    async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "ListSnapshots";
        session.require(rpc, &[Need::Controller(ControllerRpc::ListSnapshots)]).await?;
        let all = self
            .page
            .all(rpc, async |max_entries, starting_token| {
                let request = ListSnapshotsRequest {
                    max_entries,
                    starting_token,
                    source_volume_id: self.volume.clone(),
                    snapshot_id: self.id.clone(),
                    secrets: session.secrets.get(),
                };
                let answer = session
                    .call(rpc, request, async |request| {
                        session.driver.controller().list_snapshots(request).await
                    })
                    .await?;
                Ok(Answer { entries: answer.entries, next: answer.next_token })
            })
            .await?;
        let more = all.more();
        let answer = ListSnapshotsResponse { entries: all.entries, next_token: all.next };
        Ok(more.into_iter().fold(
            Report::of(rpc, &answer).rows("/entries", "No snapshots.", SNAPSHOTS),
            Report::note,
        ))
    }
}

/// Shows one snapshot (GetSnapshot)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi snap get ID")]
pub(crate) struct Get {
    /// The snapshot_id
    id: String,
}

impl Get {
    async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "GetSnapshot";
        session.require(rpc, &[Need::Controller(ControllerRpc::GetSnapshot)]).await?;
        let request = GetSnapshotRequest { snapshot_id: self.id, secrets: session.secrets.get() };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().get_snapshot(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer))
    }
}

/// Deletes a snapshot; succeeds if there is none (DeleteSnapshot)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi snap rm ID")]
pub(crate) struct Rm {
    /// The snapshot_id
    id: String,
}

impl Rm {
    async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "DeleteSnapshot";
        session.require(rpc, &[Need::Controller(ControllerRpc::CreateDeleteSnapshot)]).await?;
        let request =
            DeleteSnapshotRequest { snapshot_id: self.id.clone(), secrets: session.secrets.get() };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().delete_snapshot(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer).sentence(format!("Snapshot {} is deleted.", self.id)))
    }
}
