//! A driver in memory: it counts what it is asked, and holds an answer back when told.

mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::prelude::*;

use crate::api::PATIENCE;

/// What the driver has, whoever asked for it.
#[derive(Default)]
pub(crate) struct Ledger {
    entries: Mutex<Entries>,
    hold: watch::Sender<Hold>,
}

#[derive(Default)]
struct Entries {
    made: usize,
    volumes: BTreeMap<VolumeId, (String, Existing<Volume>)>,
    snapshots: BTreeMap<SnapshotId, (String, Existing<Snapshot>)>,
    published: BTreeSet<(VolumeId, NodeId)>,
    calls: BTreeMap<&'static str, usize>,
    /// Names under which something was made, for the second time at least.
    doubles: BTreeSet<String>,
    names: BTreeSet<String>,
}

/// An RPC that is not answered although its work is done, and whether such a call waits.
#[derive(Default)]
struct Hold {
    rpc: Option<&'static str>,
    reached: bool,
}

/// A socket of the driver. Each counts its own calls.
pub(crate) struct Door {
    service: Arc<Service>,
    _serving: JoinSet<()>,
}

struct Service {
    ledger: Arc<Ledger>,
    calls: AtomicUsize,
}

impl Ledger {
    /// Serves on the socket until the door is dropped. All doors lead to the same volumes.
    pub(crate) fn open(self: &Arc<Self>, driver: &str, socket: &Path) -> Door {
        let service = Arc::new(Service { ledger: self.clone(), calls: AtomicUsize::new(0) });
        let plugin = Plugin::builder(driver, "1.0.0")
            .volumes(service.clone())
            .attachments(service.clone())
            .expansion(service.clone())
            .modification(service.clone())
            .snapshots(service.clone())
            .drain(Duration::ZERO)
            .build()
            .unwrap();
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
        self.hold.send_replace(Hold { rpc: Some(rpc), reached: false });
    }

    /// Waits until such a call has done its work.
    pub(crate) async fn held(&self) {
        let mut hold = self.hold.subscribe();
        timeout(PATIENCE, hold.wait_for(|hold| hold.reached)).await.unwrap().unwrap();
    }

    /// Everything is answered again.
    pub(crate) fn release(&self) {
        self.hold.send_replace(Hold::default());
    }

    /// How often an RPC was called, at all doors together.
    pub(crate) fn calls(&self, rpc: &str) -> usize {
        self.entries().calls.get(rpc).copied().unwrap_or_default()
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

    async fn done(&self, rpc: &'static str) {
        let mut hold = self.hold.subscribe();
        if hold.borrow().rpc == Some(rpc) {
            self.hold.send_modify(|hold| hold.reached = true);
            // The sender is in the ledger, which outlives its calls.
            let _ = hold.wait_for(|hold| hold.rpc != Some(rpc)).await;
        }
    }
}

impl Door {
    /// Calls that came in here.
    pub(crate) fn calls(&self) -> usize {
        self.service.calls.load(Ordering::SeqCst)
    }
}

impl Service {
    fn called(&self, rpc: &'static str) -> MutexGuard<'_, Entries> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut entries = self.ledger.entries();
        *entries.calls.entry(rpc).or_default() += 1;
        entries
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
