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
use crate::manager::PluginRefusal;

/// Orders that may wait during a write; further senders block.
const BACKLOG: usize = 256;

/// Writes the drivers of the node.
#[async_trait]
pub trait NodeObjects: Send + Sync + 'static {
    /// Brings the objects of the node to the wanted state. Returns the drivers that were refused.
    async fn sync(&self, wanted: &Wanted) -> Result<Refusals, SyncError>;
}

/// A failed write.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// A retry may succeed.
    #[error("{0}")]
    Transient(String),
    /// A retry fails until someone corrects the cause.
    #[error("{0}")]
    Permanent(String),
}

/// Accepts every driver, for a node without a Kubernetes API.
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
    /// How long a driver that left keeps its entry, and how long after the start entries of unknown
    /// drivers are kept.
    pub grace: Duration,
    /// How long an installation waits for an unreachable API.
    pub patience: Duration,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30), patience: wharf_csi::CALL_TIMEOUT }
    }
}

/// Keeps the node's objects in the API in step with the drivers. Clones share the writer.
#[derive(Clone)]
pub struct NodeRecord {
    orders: mpsc::Sender<Order>,
    options: RecordOptions,
    stop: CancellationToken,
    writer: Arc<tokio::sync::Mutex<JoinSet<()>>>,
}

impl NodeRecord {
    /// Starts the writer. It creates the CSINode object at once, even without drivers.
    pub fn start(objects: Arc<dyn NodeObjects>, options: RecordOptions) -> Self {
        let (orders, inbox) = mpsc::channel(BACKLOG);
        let stop = CancellationToken::new();
        let mut writer = JoinSet::new();
        writer.spawn(Writer::new(objects, options).run(inbox, stop.clone()));
        Self { orders, options, stop, writer: Arc::new(tokio::sync::Mutex::new(writer)) }
    }

    /// Adds a driver, and waits until it is written to the API.
    pub async fn install(&self, name: &str, info: NodeInfo) -> Result<(), PluginRefusal> {
        if info.node_id.is_empty() {
            return Err(PluginRefusal::new(
                "error adding CSI driver node info: driverNodeID must not be empty",
            ));
        }
        let (reply, answer) = oneshot::channel();
        self.send(Order::Install { name: name.to_owned(), info, reply: Some(reply) }).await;
        match tokio::time::timeout(self.options.patience, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => {
                Err(PluginRefusal::new("error updating CSINode object: the node is stopping"))
            }
            Err(_) => Err(PluginRefusal(format!(
                "error updating CSINode object with CSI driver node info: the Kubernetes API took no write for {:?}",
                self.options.patience
            ))),
        }
    }

    /// Writes new information of an installed driver in the background.
    pub async fn update(&self, name: &str, info: NodeInfo) {
        self.send(Order::Install { name: name.to_owned(), info, reply: None }).await;
    }

    /// The last instance of a driver is gone: removes its entry after the grace period, unless the
    /// driver returns.
    pub async fn leave(&self, name: &str) {
        self.send(Order::Leave { name: name.to_owned() }).await;
    }

    /// Stops writing. Entries stay in the API: their drivers still run.
    pub async fn stop(&self) {
        self.stop.cancel();
        while self.writer.lock().await.join_next().await.is_some() {}
    }

    async fn send(&self, order: Order) {
        // The writer has ended only if the record was stopped; then the order is void.
        let _ = self.orders.send(order).await;
    }
}

#[cfg(test)]
mod tests;
