use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wharf_uds::{LinkState, Listener, RawCall, Relay, RelayOptions, ServeError};

use crate::metrics::{CallMetrics, RuntimeConnected};

/// Carries the calls of a listener to a runtime. Clones share the one connection to it.
#[derive(Clone, Debug)]
pub struct Proxy {
    runtime: Arc<Relay>,
    metrics: CallMetrics,
}

impl Proxy {
    /// A proxy before the runtime at the socket `runtime`, which need not be there yet.
    ///
    /// Needs to be called inside a tokio runtime.
    pub fn new(runtime: &Path) -> Proxy {
        let runtime = Arc::new(Relay::new(runtime, RelayOptions::default()));
        Proxy { runtime, metrics: CallMetrics::default() }
    }

    /// Exports what is counted.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        registry.register_collector(Box::new(RuntimeConnected(self.link())));
    }

    /// The state of the connection to the runtime, now and as it changes.
    pub fn link(&self) -> watch::Receiver<LinkState> {
        self.runtime.link()
    }

    /// Carries calls until `stop`. Those in flight then get `drain` to finish; streams that have no
    /// end by themselves take all of it.
    pub async fn serve(
        self,
        listener: Listener,
        drain: Duration,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let mut told = pin!(tell(self.runtime.path().to_owned(), self.link()));
        let handler = move |call| self.clone().attend(call);
        let mut serving = pin!(listener.serve_raw(handler, drain, stop));
        tokio::select! {
            served = &mut serving => served,
            () = &mut told => serving.await,
        }
    }

    /// Decides what is done with a call. Every method is carried as it comes.
    async fn attend(self, call: RawCall) {
        let counted = self.metrics.start(call.method());
        let code = self.runtime.carry(call).await;
        counted.finish(code);
    }
}

/// Logs when the runtime is reached and when it is lost, and no attempt in between.
async fn tell(runtime: impl AsRef<Path>, mut link: watch::Receiver<LinkState>) {
    let path = runtime.as_ref().display();
    let mut known = None;
    loop {
        let (reached, error) = match &*link.borrow_and_update() {
            LinkState::Connected { .. } => (Some(true), None),
            LinkState::Down { error } => (Some(false), Some(error.clone())),
            LinkState::Idle | LinkState::Connecting => (known, None),
        };
        if known != reached {
            match error {
                None => tracing::info!(runtime = %path, "connected to the runtime"),
                Some(error) => tracing::warn!(
                    runtime = %path,
                    error,
                    "no connection to the runtime: calls are answered UNAVAILABLE until it is back"
                ),
            }
            known = reached;
        }
        if link.changed().await.is_err() {
            return;
        }
    }
}
