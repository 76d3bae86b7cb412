use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wharf_csi::NodeInfo;

use super::plan::{Refusals, Wanted};
use crate::manager::Refusal;

/// The first pause after a failed write, its growth and its end. The first three are kubelet's.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const PAUSE_GROWTH: u32 = 5;
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// Orders that may wait while a write is under way. Senders wait beyond it.
const BACKLOG: usize = 256;

/// Where drivers are written to.
#[async_trait]
pub trait NodeObjects: Send + Sync + 'static {
    /// Brings the objects of the node to what is wanted, and says which drivers could not be taken.
    async fn sync(&self, wanted: &Wanted) -> Result<Refusals, SyncError>;
}

/// A write that did not come about.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// It may work later.
    #[error("{0}")]
    Transient(String),
    /// It will not work until someone mends something.
    #[error("{0}")]
    Permanent(String),
}

/// Without a Kubernetes API everything is in order as soon as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoApi;

#[async_trait]
impl NodeObjects for NoApi {
    async fn sync(&self, _: &Wanted) -> Result<Refusals, SyncError> {
        Ok(Refusals::new())
    }
}

/// Times of a [`NodeRecord`].
#[derive(Clone, Copy, Debug)]
pub struct RecordOptions {
    /// How long a driver that left keeps its entry, and how long after a start unknown entries are kept.
    pub grace: Duration,
    /// How long an installation waits for an API that is out of reach.
    pub patience: Duration,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30), patience: wharf_csi::CALL_TIMEOUT }
    }
}

/// Keeps the node's objects in the API as the drivers are. Clones speak to the same writer.
#[derive(Clone)]
pub struct NodeRecord {
    orders: mpsc::Sender<Order>,
    options: RecordOptions,
    stop: CancellationToken,
    writer: Arc<tokio::sync::Mutex<JoinSet<()>>>,
}

enum Order {
    Install { name: String, info: NodeInfo, reply: Option<oneshot::Sender<Result<(), Refusal>>> },
    Leave { name: String },
}

impl NodeRecord {
    /// Starts the writer. The CSINode object is made at once, also when there is no driver.
    pub fn start(objects: Arc<dyn NodeObjects>, options: RecordOptions) -> Self {
        let (orders, inbox) = mpsc::channel(BACKLOG);
        let stop = CancellationToken::new();
        let mut writer = JoinSet::new();
        writer.spawn(Writer::new(objects, options).run(inbox, stop.clone()));
        Self { orders, options, stop, writer: Arc::new(tokio::sync::Mutex::new(writer)) }
    }

    /// Writes a driver and waits until it is written.
    pub async fn install(&self, name: &str, info: NodeInfo) -> Result<(), Refusal> {
        if info.node_id.is_empty() {
            return Err(Refusal::new(
                "error adding CSI driver node info: driverNodeID must not be empty",
            ));
        }
        let (reply, answer) = oneshot::channel();
        self.send(Order::Install { name: name.to_owned(), info, reply: Some(reply) }).await;
        match tokio::time::timeout(self.options.patience, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Refusal::new("error updating CSINode object: the node is stopping")),
            Err(_) => Err(Refusal(format!(
                "error updating CSINode object with CSI driver node info: the Kubernetes API took no write for {:?}",
                self.options.patience
            ))),
        }
    }

    /// Writes new facts of an installed driver in the background.
    pub async fn update(&self, name: &str, info: NodeInfo) {
        self.send(Order::Install { name: name.to_owned(), info, reply: None }).await;
    }

    /// The last instance of a driver is gone: its entry goes after the grace period, unless it comes back.
    pub async fn leave(&self, name: &str) {
        self.send(Order::Leave { name: name.to_owned() }).await;
    }

    /// Stops writing. Entries stay: the drivers are still there.
    pub async fn stop(&self) {
        self.stop.cancel();
        while self.writer.lock().await.join_next().await.is_some() {}
    }

    async fn send(&self, order: Order) {
        // The writer is gone only when the record was stopped; then nothing is to be written.
        let _ = self.orders.send(order).await;
    }
}

struct Entry {
    info: NodeInfo,
    came: u64,
    leaves_at: Option<Instant>,
    written: bool,
}

struct Writer {
    objects: Arc<dyn NodeObjects>,
    options: RecordOptions,
    entries: BTreeMap<String, Entry>,
    arrivals: u64,
    waiting: Vec<(String, oneshot::Sender<Result<(), Refusal>>)>,
    unknown_until: Option<Instant>,
    due: Option<Instant>,
    pause: Duration,
}

impl Writer {
    fn new(objects: Arc<dyn NodeObjects>, options: RecordOptions) -> Self {
        let now = Instant::now();
        Self {
            objects,
            options,
            entries: BTreeMap::new(),
            arrivals: 0,
            waiting: Vec::new(),
            unknown_until: Some(now + options.grace),
            due: Some(now),
            pause: FIRST_PAUSE,
        }
    }

    async fn run(mut self, mut inbox: mpsc::Receiver<Order>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                order = inbox.recv() => match order {
                    None => return,
                    Some(order) => {
                        self.take(order);
                        // Drivers that come together are written together.
                        while let Ok(order) = inbox.try_recv() {
                            self.take(order);
                        }
                    }
                },
                () = until(self.next_event()) => {}
            }
            self.expire(Instant::now());
            if self.due.is_some_and(|due| due <= Instant::now()) {
                let stopped = pin!(stop.cancelled());
                tokio::select! {
                    () = stopped => return,
                    () = self.write() => {}
                }
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Install { name, info, reply } => {
                self.arrivals += 1;
                let known = self.entries.remove(&name);
                // An update in the background must not bring back a driver that has left.
                if reply.is_none() && known.as_ref().is_none_or(|entry| entry.leaves_at.is_some()) {
                    self.entries.extend(known.map(|entry| (name, entry)));
                    return;
                }
                let came = known.as_ref().map_or(self.arrivals, |entry| entry.came);
                let written = known.is_some_and(|entry| entry.written && entry.info == info);
                self.entries.insert(name.clone(), Entry { info, came, leaves_at: None, written });
                self.waiting.extend(reply.map(|reply| (name, reply)));
                self.due = Some(Instant::now());
            }
            Order::Leave { name } => {
                if let Some(entry) = self.entries.get_mut(&name) {
                    entry.leaves_at = Some(Instant::now() + self.options.grace);
                }
            }
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let leaving = self.entries.values().filter_map(|entry| entry.leaves_at);
        leaving.chain(self.due).chain(self.unknown_until).min()
    }

    /// Ends grace periods.
    fn expire(&mut self, now: Instant) {
        let before = self.entries.len();
        self.entries.retain(|_, entry| entry.leaves_at.is_none_or(|at| at > now));
        let unknown_over = self.unknown_until.is_some_and(|until| until <= now);
        if unknown_over {
            self.unknown_until = None;
        }
        if unknown_over || self.entries.len() != before {
            self.due = Some(self.due.map_or(now, |due| due.min(now)));
        }
    }

    async fn write(&mut self) {
        let mut ordered: Vec<_> = self.entries.iter().collect();
        ordered.sort_by_key(|(_, entry)| entry.came);
        let wanted = Wanted {
            drivers: ordered
                .into_iter()
                .map(|(n, entry)| (n.clone(), entry.info.clone()))
                .collect(),
            keep_unknown: self.unknown_until.is_some(),
        };
        match self.objects.sync(&wanted).await {
            Ok(refused) => {
                self.due = None;
                self.pause = FIRST_PAUSE;
                self.settle(&refused);
            }
            Err(error) => {
                warn!(err = %error, again_in = ?self.pause, "CSINode and Node could not be written");
                self.due = Some(Instant::now() + self.pause);
                self.pause = (self.pause * PAUSE_GROWTH).min(LAST_PAUSE);
                if let SyncError::Permanent(reason) = error {
                    self.fail_waiting(&format!(
                        "error updating CSINode object with CSI driver node info: {reason}"
                    ));
                }
            }
        }
    }

    fn settle(&mut self, refused: &Refusals) {
        for (name, reason) in refused {
            warn!(driver = %name, err = %reason, "driver refused");
            self.entries.remove(name);
        }
        for (name, entry) in &mut self.entries {
            if !std::mem::replace(&mut entry.written, true) {
                info!(driver = %name, node_id = %entry.info.node_id,
                    max_volumes = entry.info.max_volumes, topology = ?entry.info.topology,
                    "driver installed");
            }
        }
        for (name, reply) in self.waiting.drain(..) {
            let result = match refused.get(&name) {
                None => Ok(()),
                Some(reason) => Err(Refusal(format!(
                    "error updating Node object with CSI driver node info: {reason}"
                ))),
            };
            // Whoever waited may have given up.
            let _ = reply.send(result);
        }
    }

    fn fail_waiting(&mut self, reason: &str) {
        for (name, reply) in self.waiting.drain(..) {
            self.entries.remove(&name);
            let _ = reply.send(Err(Refusal(reason.to_owned())));
        }
    }
}

/// Sleeps until `at`, or for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
