use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use wharf_csi::NodeInfo;

use super::{
    plan::{Refusals, Wanted},
    writer::{Order, Writer},
};
use crate::manager::Refusal;

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
