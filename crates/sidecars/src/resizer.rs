//! Grows volumes, and changes their attributes, as claims ask for it.
//!
//! A claim that asks for more than its volume has is the wish; ControllerExpandVolume fulfils it, and the kubelet grows
//! the filesystem afterwards where that is needed. A claim that names another VolumeAttributesClass than its volume has is
//! the other wish, and ControllerModifyVolume fulfils that. How far either has come is in the status of the claim, which
//! people, quotas and the kubelet read, and from which a process that begins anew goes on. A driver whose volumes grow on
//! the node alone is not called: its claims are passed on to the kubelet.
//!
//! - `ability`: what the driver can do; `place`: which volumes are of this node, where a controller runs on each.
//! - `expansion`: the operation for a claim that is to grow, its decisions and what it writes.
//! - `modification`: the same for a claim whose volume is to change.
//! - `reasons`: what makes a claim be looked at; `notes`: what is known of claims and not in the API.

mod ability;
mod expansion;
mod modification;
mod notes;
mod place;
mod reasons;
mod status;

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
    ability::{Abilities, Expansion},
    expansion::Growth,
    modification::Verdict,
    notes::Notes,
    place::Place,
};
use crate::{Caches, attributes_api, caches::Watched};

/// How many claims are written to for each volume that the driver may grow at a time: it does not wait for the API.
const AHEAD: usize = 4;

/// How a [`Resizer`] works; the defaults are upstream's.
#[derive(Clone, Debug)]
pub struct ResizerOptions {
    /// The driver's name.
    pub driver: String,
    /// Only volumes of this node are worked on, for a driver whose controller runs on each node.
    pub node: Option<String>,
    /// How many volumes the driver grows at a time, and how many it changes.
    pub workers: usize,
    /// The waits after failures of one claim. What the driver calls infeasible waits for the longest.
    pub backoff: Backoff,
    /// How often all claims are looked at without a reason; zero is never.
    pub resync: Duration,
    /// Whether a volume that cannot grow in use waits until no pod uses it.
    pub in_use: bool,
    /// Whether the size before a growth is noted on the volume until the node has finished.
    pub annotate: bool,
    /// Whether attributes are changed, where driver and API know about that.
    pub modify: bool,
    /// Whether the driver is told which claim and volume it changes.
    pub extra_metadata: bool,
    /// Where the queues are counted and timed, if someone asks.
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

/// Why there is nothing for a resizer to do, or it cannot know.
#[derive(Debug, thiserror::Error)]
pub enum ResizerError {
    /// A driver without a controller service is not meant to have a resizer.
    #[error(
        "CSI driver {0} has no controller service: expected CONTROLLER_SERVICE among its plugin capabilities; run no \
         resizer beside it"
    )]
    NoController(String),
    /// The driver can do neither.
    #[error(
        "CSI driver {0} supports neither resize nor modify: expected EXPAND_VOLUME of its controller or node service, or \
         MODIFY_VOLUME; run no resizer beside it"
    )]
    Unable(String),
    /// The driver does not say.
    #[error("{call} of the CSI driver: rpc error: code = {} desc = {}", code_name(.status.code()), .status.message())]
    Driver {
        /// What it was asked.
        call: &'static str,
        /// Its answer.
        status: Box<Status>,
    },
}

impl ResizerError {
    /// Whether asking again can help.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Driver { status, .. } => class(status, true) != ErrorClass::Final,
            Self::NoController(_) | Self::Unable(_) => false,
        }
    }
}

/// The controller.
pub struct Resizer(Arc<Shared>);

/// What its operations share.
struct Shared {
    options: ResizerOptions,
    abilities: Abilities,
    /// Where volumes have to be; `None` for anywhere.
    place: Option<Place>,
    client: Client,
    driver: Driver,
    claims: Objects<PersistentVolumeClaim>,
    volumes: Objects<PersistentVolume>,
    classes: Objects<VolumeAttributesClass>,
    pods: Arc<Store<Pod>>,
    events: Events,
    /// The driver's part of a growth.
    growing: Semaphore,
    growths: Notes<Growth>,
    changes: Notes<Verdict>,
}

impl Resizer {
    /// A resizer for `driver`, whose calls end after the timeout that it was made with. The driver is asked what it can do.
    pub async fn new(
        options: ResizerOptions,
        client: Client,
        driver: Driver,
        caches: Caches,
        events: Events,
    ) -> Result<Self, ResizerError> {
        let mut abilities = Abilities::of(&options.driver, &driver).await?;
        let place = match &options.node {
            Some(node) => Some(Place::of(node, &driver).await?),
            None => None,
        };
        abilities.modifies &= options.modify;
        if abilities.modifies && !attributes_api::is_served(&client).await {
            tracing::info!("volumes are not modified: the API has no VolumeAttributesClass v1");
            abilities.modifies = false;
        }
        caches.want(&[Watched::Claims, Watched::Volumes]);
        if options.in_use {
            caches.want(&[Watched::Pods]);
        }
        if abilities.modifies {
            caches.want(&[Watched::AttributesClasses]);
        }
        Ok(Self(Arc::new(Shared {
            abilities,
            place,
            claims: Objects::new(client.clone(), caches.claims),
            volumes: Objects::new(client.clone(), caches.volumes),
            classes: Objects::new(client.clone(), caches.attributes_classes),
            pods: caches.pods,
            events,
            growing: Semaphore::new(options.workers.max(1)),
            growths: Notes::default(),
            changes: Notes::default(),
            client,
            driver,
            options,
        })))
    }

    /// Works until it is told to stop, and then stops at once: no call and no write is begun after that. The caches have
    /// to be filled meanwhile by whoever made them.
    pub async fn run(self, stop: CancellationToken) {
        let shared = self.0;
        let growing = async {
            if shared.abilities.expansion != Expansion::None {
                shared.expand_claims(&stop).await;
            }
        };
        let changing = async {
            if shared.abilities.modifies {
                shared.modify_claims(&stop).await;
            }
        };
        tokio::join!(growing, changing);
    }
}

impl Shared {
    /// The volume of a claim, where it is the driver's, in its place, and theirs is a match that both agree on.
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

    /// The configuration of a queue. Both have the name that upstream gives to both of its own.
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
