use clap::Args;
use wharf_facts::quantity;
use wharf_proto::csi::{
    CapacityRange, ControllerGetVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest,
    GetCapacityRequest, ListVolumesRequest, ListVolumesResponse, TopologyRequirement,
    ValidateVolumeCapabilitiesRequest, VolumeContentSource,
    volume_content_source::{SnapshotSource, Type as Source, VolumeSource},
};

use super::{
    access::Access,
    failure::Failure,
    need::{ControllerRpc, Need, Service},
    paging::{Answer, Page},
    pair::{self, Pair},
    report::{Column, Report},
    session::Session,
};

const VOLUMES: &[Column] = &[
    ("ID", "/volume/volume_id"),
    ("SIZE", "/volume/capacity_bytes"),
    ("NODES", "/status/published_node_ids"),
    ("ABNORMAL", "/status/volume_condition/abnormal"),
    ("MESSAGE", "/status/volume_condition/message"),
];

/// Shows the space that is left for new volumes (GetCapacity)
#[derive(Args)]
#[command(
    after_help = "Example:\n  wharf csi capacity --topology topology.local.csi.wharf/node=node-1"
)]
pub(crate) struct Capacity {
    /// A parameter of the StorageClass
    #[arg(long = "param", value_name = "KEY=VALUE")]
    params: Vec<Pair>,
    /// A topology segment to ask for
    #[arg(long, value_name = "KEY=VALUE")]
    topology: Vec<Pair>,
}

impl Capacity {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "GetCapacity";
        session.require(rpc, &[Need::Controller(ControllerRpc::GetCapacity)]).await?;
        let request = GetCapacityRequest {
            volume_capabilities: Vec::new(),
            parameters: pair::map(self.params),
            accessible_topology: pair::topology(self.topology),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().get_capacity(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer))
    }
}

/// Creates a volume, or finds the one of this name (CreateVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi create data --size 1Gi --fs xfs\n  \
                        wharf csi create copy --size 1Gi --from-snapshot ID")]
pub(crate) struct Create {
    /// Name of the request: the driver recognizes a repeated one by it
    name: String,
    /// At least this large: 64Mi, 1Gi, 1G or bytes
    #[arg(long, value_parser = quantity::parse)]
    size: i64,
    /// At most this large
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse)]
    limit: Option<i64>,
    #[command(flatten)]
    access: Access,
    /// A parameter of the StorageClass
    #[arg(long = "param", value_name = "KEY=VALUE")]
    params: Vec<Pair>,
    /// A mutable parameter, as of a VolumeAttributesClass
    #[arg(long, value_name = "KEY=VALUE")]
    mutable: Vec<Pair>,
    /// Restore this snapshot into the volume
    #[arg(long, value_name = "ID")]
    from_snapshot: Option<String>,
    /// Clone this volume
    #[arg(long, value_name = "ID", conflicts_with = "from_snapshot")]
    from_volume: Option<String>,
    /// A topology segment from which the volume must be accessible
    #[arg(long, value_name = "KEY=VALUE")]
    topology: Vec<Pair>,
}

impl Create {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "CreateVolume";
        session.require(rpc, &self.needs()).await?;
        let source = match (self.from_snapshot, self.from_volume) {
            (Some(snapshot_id), _) => Some(Source::Snapshot(SnapshotSource { snapshot_id })),
            (None, Some(volume_id)) => Some(Source::Volume(VolumeSource { volume_id })),
            (None, None) => None,
        };
        let place = pair::topology(self.topology).map(|place| TopologyRequirement {
            requisite: vec![place.clone()],
            preferred: vec![place],
        });
        let request = CreateVolumeRequest {
            name: self.name,
            capacity_range: Some(CapacityRange {
                required_bytes: self.size,
                limit_bytes: self.limit.unwrap_or_default(),
            }),
            volume_capabilities: vec![self.access.capability()],
            parameters: pair::map(self.params),
            secrets: session.secrets.get(),
            volume_content_source: source
                .map(|source| VolumeContentSource { r#type: Some(source) }),
            accessibility_requirements: place,
            mutable_parameters: pair::map(self.mutable),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().create_volume(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer))
    }

    fn needs(&self) -> Vec<Need> {
        let mut needs = vec![Need::Controller(ControllerRpc::CreateDeleteVolume)];
        needs.extend(self.access.controller_needs());
        let more = [
            (self.from_snapshot.is_some(), Need::Controller(ControllerRpc::CreateDeleteSnapshot)),
            (self.from_volume.is_some(), Need::Controller(ControllerRpc::CloneVolume)),
            (!self.mutable.is_empty(), Need::Controller(ControllerRpc::ModifyVolume)),
            (!self.topology.is_empty(), Need::Plugin(Service::VolumeAccessibilityConstraints)),
        ];
        needs.extend(more.into_iter().filter_map(|(asked, need)| asked.then_some(need)));
        needs
    }
}

/// Lists the volumes of the driver, all pages of them (ListVolumes)
#[derive(Args)]
#[command(
    after_help = "Example:\n  wharf csi ls -o json | jq -r '.entries[].volume.volume_id'\n  \
                        wharf csi ls --limit 10"
)]
pub(crate) struct Ls {
    #[command(flatten)]
    page: Page,
}

impl Ls {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "ListVolumes";
        session.require(rpc, &[Need::Controller(ControllerRpc::ListVolumes)]).await?;
        let all = self
            .page
            .all(rpc, async |max_entries, starting_token| {
                let request = ListVolumesRequest { max_entries, starting_token };
                let answer = session
                    .call(rpc, request, async |request| {
                        session.driver.controller().list_volumes(request).await
                    })
                    .await?;
                Ok(Answer { entries: answer.entries, next: answer.next_token })
            })
            .await?;
        let more = all.more();
        let answer = ListVolumesResponse { entries: all.entries, next_token: all.next };
        Ok(more
            .into_iter()
            .fold(Report::of(rpc, &answer).rows("/entries", "No volumes.", VOLUMES), Report::note))
    }
}

/// Shows one volume (ControllerGetVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi get ID")]
pub(crate) struct Get {
    /// The volume_id
    id: String,
}

impl Get {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "ControllerGetVolume";
        session.require(rpc, &[Need::Controller(ControllerRpc::GetVolume)]).await?;
        let request = ControllerGetVolumeRequest { volume_id: self.id };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().controller_get_volume(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer))
    }
}

/// Deletes a volume; succeeds if there is none (DeleteVolume)
#[derive(Args)]
#[command(after_help = "Example:\n  wharf csi rm ID")]
pub(crate) struct Rm {
    /// The volume_id
    id: String,
}

impl Rm {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "DeleteVolume";
        session.require(rpc, &[Need::Controller(ControllerRpc::CreateDeleteVolume)]).await?;
        let request =
            DeleteVolumeRequest { volume_id: self.id.clone(), secrets: session.secrets.get() };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().delete_volume(request).await
            })
            .await?;
        Ok(Report::of(rpc, &answer).sentence(format!("Volume {} is deleted.", self.id)))
    }
}

/// Checks whether a volume supports an access mode and type (ValidateVolumeCapabilities)
#[derive(Args)]
#[command(
    after_help = "Example:\n  wharf csi validate ID --fs ext4 --mode single-node-multi-writer"
)]
pub(crate) struct Validate {
    /// The volume_id
    id: String,
    #[command(flatten)]
    access: Access,
    /// An entry of the volume's volume_context
    #[arg(long, value_name = "KEY=VALUE")]
    context: Vec<Pair>,
    /// A parameter of the StorageClass
    #[arg(long = "param", value_name = "KEY=VALUE")]
    params: Vec<Pair>,
    /// A mutable parameter
    #[arg(long, value_name = "KEY=VALUE")]
    mutable: Vec<Pair>,
}

impl Validate {
    pub(crate) async fn run(self, session: &Session) -> Result<Report, Failure> {
        let rpc = "ValidateVolumeCapabilities";
        session.require(rpc, &[Need::Plugin(Service::ControllerService)]).await?;
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: self.id.clone(),
            volume_context: pair::map(self.context),
            volume_capabilities: vec![self.access.capability()],
            parameters: pair::map(self.params),
            secrets: session.secrets.get(),
            mutable_parameters: pair::map(self.mutable),
        };
        let answer = session
            .call(rpc, request, async |request| {
                session.driver.controller().validate_volume_capabilities(request).await
            })
            .await?;
        let report = Report::of(rpc, &answer);
        if answer.confirmed.is_some() {
            return Ok(report.sentence(format!("Volume {} supports this.", self.id)));
        }
        let why = Some(answer.message).filter(|message| !message.is_empty());
        let why = why.unwrap_or_else(|| "the driver gives no reason".to_owned());
        Ok(report.sentence(format!("Volume {} does not support this: {why}", self.id)).incomplete())
    }
}
