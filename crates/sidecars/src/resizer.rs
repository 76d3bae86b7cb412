//! Expands volumes and changes their attributes, as claims request it.
//!
//! ControllerExpandVolume fulfils a claim that requests more than its volume has, and the kubelet
//! grows the filesystem afterwards if needed. ControllerModifyVolume fulfils a claim that names a
//! VolumeAttributesClass other than its volume's. The progress of both is in the status of the
//! claim: people, quotas and the kubelet read it, and a restarted process continues from it. A
//! driver whose volumes grow on the node alone is not called: its claims are passed on to the
//! kubelet.
//!
//! - `capabilities`: the driver's capabilities; `place`: which volumes belong to this node, if a
//!   controller runs on each.
//! - `expansion`: the operation for a claim to be expanded, its decisions and patches.
//! - `modification`: the same for a claim whose volume is to be modified.
//! - `triggers`: queues claims on changes; `claim_states`: state of claims that is not in the API.

mod capabilities;
mod claim_states;
mod expansion;
mod modification;
mod place;
mod status;
mod triggers;

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_cluster::{
    Events, Objects, PersistentVolume, PersistentVolumeClaim, Pod, Store, VolumeAttributesClass,
};
use wharf_csi::{Driver, ErrorClass, class};
use wharf_reconcile::{Backoff, Config, WorkqueueMetrics};
use wharf_uds::code_name;

use self::{
    capabilities::{Expansion, ResizerCapabilities},
    claim_states::ClaimStates,
    expansion::ExpansionState,
    modification::ModificationState,
    place::Place,
};
use crate::{Caches, attributes_api, caches::Watched};

/// Claims that are written concurrently for each concurrent ControllerExpandVolume call: the driver
/// does not wait for the API.
const AHEAD: usize = 4;

/// Settings of a [`Resizer`]; the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct ResizerOptions {
    /// The driver's name.
    pub driver: String,
    /// Serve only volumes of this node, for a driver whose controller runs on each node.
    pub node: Option<String>,
    /// Concurrent expansions, and as many modifications.
    pub workers: usize,
    /// The back-off of one claim. Its maximum is the pause after an error that the driver reports
    /// as infeasible.
    pub backoff: Backoff,
    /// How often all claims are queued without a trigger; never if zero.
    pub resync: Duration,
    /// Wait until no pod uses a volume that the driver cannot expand in use.
    pub in_use: bool,
    /// Note the earlier size on the volume until the node has finished.
    pub annotate: bool,
    /// Modify volumes, if driver and API support it.
    pub modify: bool,
    /// Send the names of claim and PersistentVolume when a volume is modified.
    pub extra_metadata: bool,
    /// The metrics of the queues, if wanted.
    pub queues: Option<WorkqueueMetrics>,
}

impl ResizerOptions {
    /// The defaults for a driver.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            node: None,
            workers: 10,
            backoff: Backoff { first: Duration::from_secs(1), max: Duration::from_mins(5) },
            resync: Duration::from_mins(10),
            in_use: true,
            annotate: true,
            modify: true,
            extra_metadata: false,
            queues: None,
        }
    }
}

/// Why a resizer cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ResizerError {
    /// The driver has no controller service, and so needs no resizer.
    #[error(
        "CSI driver {0} has no controller service: expected CONTROLLER_SERVICE among its plugin capabilities; run no \
         resizer next to it"
    )]
    NoController(String),
    /// The driver can neither expand nor modify volumes.
    #[error(
        "CSI driver {0} supports neither resize nor modify: expected EXPAND_VOLUME of its controller or node service, or \
         MODIFY_VOLUME; run no resizer next to it"
    )]
    Unable(String),
    /// The driver did not report its capabilities.
    #[error("{call} of the CSI driver: rpc error: code = {} desc = {}", code_name(.status.code()), .status.message())]
    Driver {
        /// The method of the call.
        call: &'static str,
        /// The driver's answer.
        status: Box<Status>,
    },
}

impl ResizerError {
    /// Whether a retry can help.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Driver { status, .. } => class(status, true) != ErrorClass::Final,
            Self::NoController(_) | Self::Unable(_) => false,
        }
    }
}

/// The controller.
pub struct Resizer(Arc<ResizerCore>);

/// State that the operations share.
struct ResizerCore {
    options: ResizerOptions,
    capabilities: ResizerCapabilities,
    /// The segment that volumes must be accessible from; `None` for any.
    place: Option<Place>,
    client: Client,
    driver: Driver,
    claims: Objects<PersistentVolumeClaim>,
    volumes: Objects<PersistentVolume>,
    classes: Objects<VolumeAttributesClass>,
    pods: Arc<Store<Pod>>,
    events: Events,
    /// Limits concurrent ControllerExpandVolume calls.
    growing: Semaphore,
    expansion_states: ClaimStates<ExpansionState>,
    changes: ClaimStates<ModificationState>,
}

impl Resizer {
    /// A resizer for `driver`, whose calls have the driver's timeout. Fetches the driver's
    /// capabilities.
    pub async fn new(
        options: ResizerOptions,
        client: Client,
        driver: Driver,
        caches: Caches,
        events: Events,
    ) -> Result<Self, ResizerError> {
        let mut capabilities = ResizerCapabilities::of(&options.driver, &driver).await?;
        let place = match &options.node {
            Some(node) => Some(Place::of(node, &driver).await?),
            None => None,
        };
        capabilities.modifies &= options.modify;
        if capabilities.modifies && !attributes_api::is_served(&client).await {
            tracing::info!("not modifying volumes: API has no VolumeAttributesClass v1");
            capabilities.modifies = false;
        }
        caches.want(&[Watched::Claims, Watched::Volumes]);
        if options.in_use {
            caches.want(&[Watched::Pods]);
        }
        if capabilities.modifies {
            caches.want(&[Watched::AttributesClasses]);
        }
        Ok(Self(Arc::new(ResizerCore {
            capabilities,
            place,
            claims: Objects::new(client.clone(), caches.claims),
            volumes: Objects::new(client.clone(), caches.volumes),
            classes: Objects::new(client.clone(), caches.attributes_classes),
            pods: caches.pods,
            events,
            growing: Semaphore::new(options.workers.max(1)),
            expansion_states: ClaimStates::default(),
            changes: ClaimStates::default(),
            client,
            driver,
            options,
        })))
    }

    /// Works until `stop`, and then returns at once: no call or write begins after that. The caller
    /// fills the caches meanwhile.
    pub async fn run(self, stop: CancellationToken) {
        let shared = self.0;
        let growing = async {
            if shared.capabilities.expansion != Expansion::None {
                shared.expand_claims(&stop).await;
            }
        };
        let changing = async {
            if shared.capabilities.modifies {
                shared.modify_claims(&stop).await;
            }
        };
        tokio::join!(growing, changing);
    }
}

impl ResizerCore {
    /// The volume of a claim, if it is the driver's, in its segment, and bound to the claim from
    /// both sides.
    fn volume_of(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let volume = self.volumes.store().get(claim.spec.volume_name.as_deref()?)?;
        let own = volume.is_of(&self.options.driver);
        let bound = volume.spec.claim_ref.as_ref().is_some_and(|bound| {
            bound.uid == claim.metadata.uid
                && claim.metadata.namespace.as_ref() == Some(&bound.namespace)
        });
        let here = self.place.as_ref().is_none_or(|place| place.holds(&volume));
        (own && bound && here && claim.status.phase == "Bound").then_some(volume)
    }

    /// The settings of a queue. Both queues have the same name, as upstream's have.
    fn config(&self, name: &'static str, parallelism: usize) -> Config {
        let queue = format!("{}-pvc", self.options.driver);
        Config {
            name,
            parallelism,
            backoff: self.options.backoff,
            metrics: self.options.queues.as_ref().map(|queues| queues.queue(queue)),
        }
    }
}
