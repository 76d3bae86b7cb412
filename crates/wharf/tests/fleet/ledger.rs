//! A driver in memory that counts its calls, and delays an answer on request.

mod hold;
mod node;
mod service;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::prelude::*;

use self::hold::Hold;

/// What the driver has, whoever asked for it.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: Mutex<Entries>,
    hold: Hold,
}

#[derive(Default)]
struct Entries {
    made: usize,
    volumes: BTreeMap<VolumeId, (String, Existing<Volume>)>,
    snapshots: BTreeMap<SnapshotId, (String, Existing<Snapshot>)>,
    published: BTreeSet<(VolumeId, NodeId)>,
    calls: Vec<Call>,
    /// Names under which something was made, for the second time at least.
    doubles: BTreeSet<String>,
    names: BTreeSet<String>,
    /// RPCs whose next call is refused, and what with.
    refused: BTreeMap<&'static str, String>,
    /// RPCs that are answered UNAVAILABLE, before any work is done.
    unavailable: BTreeSet<&'static str>,
    /// What each RPC was called with to prove who calls.
    credentials: BTreeMap<&'static str, BTreeSet<String>>,
}

/// A call, as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) at: Timestamp,
    pub(crate) door: String,
    pub(crate) rpc: &'static str,
    /// What is to be made or changed: a name or an ID, and a node.
    pub(crate) what: String,
}

/// A socket of the driver.
pub(crate) struct Door {
    service: Arc<Service>,
    _serving: JoinSet<()>,
}

struct Service {
    ledger: Arc<Ledger>,
    /// The name of the door, which is that of the socket.
    door: String,
    /// The one place from which its volumes are reached; `None` for everywhere.
    place: Option<Topology>,
}

/// The secret that tells who calls.
pub(crate) const PASSWORD: &str = "password";

impl Ledger {
    /// Serves on the socket until the door is dropped. All doors lead to the same volumes.
    pub(crate) fn open(self: &Arc<Self>, driver: &str, socket: &Path) -> Door {
        self.serve(driver, socket, None)
    }

    /// The same as a driver of one node, which has its volumes to itself.
    pub(crate) fn open_at(self: &Arc<Self>, driver: &str, socket: &Path, place: Topology) -> Door {
        self.serve(driver, socket, Some(place))
    }

    fn serve(self: &Arc<Self>, driver: &str, socket: &Path, place: Option<Topology>) -> Door {
        let door = socket.file_stem().unwrap().to_str().unwrap().to_owned();
        let on_node = place.is_some();
        let service = Arc::new(Service { ledger: self.clone(), door, place });
        let mut builder = Plugin::builder(driver, "1.0.0")
            .volumes(service.clone())
            .attachments(service.clone())
            .expansion(service.clone())
            .modification(service.clone())
            .snapshots(service.clone())
            .drain(Duration::ZERO);
        if on_node {
            builder = builder.node(service.clone()).topology();
        }
        let plugin = builder.build().unwrap();
        let endpoint = socket.to_str().unwrap().parse().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            // Ends with its task, never by itself.
            plugin.serve(endpoint, CancellationToken::new()).await.unwrap();
        });
        Door { service, _serving: serving }
    }

    /// Calls of `rpc` are not answered from now on.
    pub(crate) fn hold(&self, rpc: &'static str) {
        self.hold.begin(rpc, None);
    }

    /// Waits until such a call has done its work.
    pub(crate) async fn held(&self) {
        self.hold.held().await;
    }

    /// Waits until a call was refused because another one is held.
    pub(crate) async fn refused(&self) {
        self.hold.refused().await;
    }

    /// Everything is answered again.
    pub(crate) fn release(&self) {
        self.hold.end();
    }

    /// The next call of an RPC is refused with this text.
    pub(crate) fn refuse(&self, rpc: &'static str, text: &str) {
        self.entries().refused.insert(rpc, text.to_owned());
    }

    /// Calls of an RPC are answered UNAVAILABLE from now on, and nothing is done for them.
    pub(crate) fn take_down(&self, rpc: &'static str) {
        self.entries().unavailable.insert(rpc);
    }

    /// Calls of an RPC are answered again.
    pub(crate) fn bring_back(&self, rpc: &'static str) {
        self.entries().unavailable.remove(rpc);
    }

    /// The passwords that an RPC was called with.
    pub(crate) fn passwords(&self, rpc: &str) -> Vec<String> {
        let entries = self.entries();
        entries.credentials.get(rpc).into_iter().flatten().cloned().collect()
    }

    /// How often an RPC was called, at all doors together.
    pub(crate) fn calls(&self, rpc: &str) -> usize {
        self.entries().calls.iter().filter(|call| call.rpc == rpc).count()
    }

    /// All calls, in their order.
    pub(crate) fn journal(&self) -> Vec<Call> {
        self.entries().calls.clone()
    }

    pub(crate) fn volumes(&self) -> usize {
        self.entries().volumes.len()
    }

    /// Sees to it that nothing is left, and that nothing was made twice.
    pub(crate) fn assert_clean(&self) {
        let entries = self.entries();
        assert!(entries.volumes.is_empty(), "volumes are left: {:?}", entries.volumes);
        assert!(entries.snapshots.is_empty(), "snapshots are left: {:?}", entries.snapshots);
        assert!(entries.published.is_empty(), "attachments are left: {:?}", entries.published);
        drop(entries);
        self.assert_single();
    }

    /// Sees to it that nothing was made twice.
    pub(crate) fn assert_single(&self) {
        let doubles = &self.entries().doubles;
        assert!(doubles.is_empty(), "made twice: {doubles:?}");
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap()
    }
}

impl Door {
    /// How many calls came in here.
    pub(crate) fn calls(&self) -> usize {
        let entries = self.service.ledger.entries();
        entries.calls.iter().filter(|call| call.door == self.service.door).count()
    }

    /// The next call of `rpc` that comes in here does its work and is not answered, and those after
    /// it are refused.
    pub(crate) fn hold(&self, rpc: &'static str) {
        self.service.ledger.hold.begin(rpc, Some(&self.service.door));
    }
}

impl Service {
    fn called(
        &self,
        rpc: &'static str,
        what: impl Display,
    ) -> Result<MutexGuard<'_, Entries>, Failure> {
        let mut entries = self.ledger.entries();
        let (door, what) = (self.door.clone(), what.to_string());
        entries.calls.push(Call { at: Timestamp::now(), door, rpc, what });
        self.ledger.hold.admit(rpc, &self.door)?;
        if entries.unavailable.contains(rpc) {
            return Err(Failure::Unavailable(format!("{rpc} is down")));
        }
        match entries.refused.remove(rpc) {
            Some(text) => Err(Failure::Unauthenticated(text)),
            None => Ok(entries),
        }
    }

    fn proven(&self, rpc: &'static str, secrets: &Secrets) {
        let mut entries = self.ledger.entries();
        let password = secrets.get(PASSWORD).unwrap_or_default().to_owned();
        entries.credentials.entry(rpc).or_default().insert(password);
    }

    async fn done(&self, rpc: &'static str) {
        self.ledger.hold.pass(rpc, &self.door).await;
    }
}

impl Entries {
    /// An ID for what is made under a name. A name is used once, also if what it named is gone.
    fn id(&mut self, name: &str) -> String {
        self.made += 1;
        if !self.names.insert(name.to_owned()) {
            self.doubles.insert(name.to_owned());
        }
        format!("ledger-{:04}", self.made)
    }
}
