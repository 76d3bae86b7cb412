//! The driver as a sidecar sees it: waited for at the start, asked again whenever it comes back.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};
use tonic::{Code, Status};
use tracing::{info, warn};
use wharf_csi::{Calls, Capabilities, Driver, NodeCapabilities};
use wharf_facts::validation::check_driver_name;
use wharf_uds::{LinkState, RpcMetrics, Silence, code_name};

use super::controller::{Served, Source};

/// How often the wait for the driver's socket is mentioned, and how often before it ends.
const MENTION: Duration = Duration::from_secs(10);
const MENTIONS: usize = 3;
/// Between two questions to a driver that is not ready.
const PAUSE: Duration = Duration::from_secs(1);
/// A driver that has answered no call for so long is asked for its Probe. A call may take longer than that: then the driver
/// answers the Probe.
const QUIET: Duration = Duration::from_secs(5);
/// A driver that does not answer the Probe for so long counts as away. livenessprobe has the same limit.
const PROBE: Duration = Duration::from_secs(3);

/// Where the driver is, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DriverOptions {
    pub(super) socket: PathBuf,
    /// How long a call may take.
    pub(super) timeout: Duration,
    /// What counts of the node that the driver is on.
    pub(super) node: NodeFacts,
}

/// What of a node makes a driver another one, for those who work by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    /// Where it stands: only that node is served.
    pub(super) place: bool,
    /// What the driver can do there.
    pub(super) capabilities: bool,
}

/// What a driver says of its node, as far as that counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeSide {
    place: Option<BTreeMap<String, String>>,
    capabilities: Option<NodeCapabilities>,
}

/// The driver that is at a socket, whichever it is.
pub(super) struct DriverSource {
    options: DriverOptions,
    metrics: RpcMetrics,
}

/// A driver that has said who it is and what it can do.
#[derive(Clone, Debug)]
pub(super) struct Connected {
    /// For work: asked on connections only on which it has said that it is still the same.
    pub(super) driver: Driver,
    pub(super) name: String,
    pub(super) capabilities: Capabilities,
    node: NodeSide,
    /// Asked whenever there is a connection.
    anyone: Driver,
    /// The connection that this was said on; none while the driver does not answer.
    known: Arc<watch::Sender<u64>>,
    /// The same, also while the driver does not answer.
    last_known: Arc<AtomicU64>,
    /// Whether it answers.
    silence: Silence,
}

impl Source for DriverSource {
    type Options = DriverOptions;
    type Found = Connected;

    fn new(options: DriverOptions, metrics: RpcMetrics) -> Self {
        Self { options, metrics }
    }

    /// Waits for the socket for 30 s, then for the driver to be ready, and asks it.
    async fn connect(&self) -> anyhow::Result<Connected> {
        let nameless = self.dial(false, self.metrics.clone());
        self.wait(&nameless).await?;
        probe(&nameless).await?;
        let name = name(&nameless).await?;
        // From here on calls are counted under the driver's name.
        let mut connected = identify(&self.named(&name)).await?;
        ensure!(
            connected.name == name,
            "the CSI driver at {} called itself {name} and {} within a moment",
            self.options.socket.display(),
            connected.name
        );
        // One that does not say is asked again by whoever needs it.
        connected.node = self.node_side(&connected.anyone).await.unwrap_or_default();
        info!(driver = %name, "CSI driver is ready");
        Ok(connected)
    }

    /// Waits until the driver has come back as another one, with other capabilities or in another place. While it is away, and when it
    /// comes back as it was, nothing ends: calls fail, and are tried again. A driver that does not answer counts as away.
    async fn changed(&self, known: &Connected) -> Connected {
        loop {
            let generation = *known.known.borrow();
            tokio::select! {
                is_lost = lost(&known.anyone, generation) => if !is_lost {
                    // The channel is held by `known`, so this cannot be; there is nothing more to learn then.
                    return std::future::pending().await;
                },
                () = known.falls_silent() => {
                    warn!(driver = %known.name, "CSI driver does not answer, waiting for it");
                    known.known.send_replace(NONE);
                }
            }
            match self.identify_again(known).await {
                Ok(found) if found.is_same(known) => {
                    info!(driver = %known.name, "CSI driver is back, as it was");
                    let generation = *found.known.borrow();
                    known.last_known.store(generation, Ordering::Relaxed);
                    known.known.send_replace(generation);
                }
                Ok(found) => {
                    warn!(driver = %found.name, was = %known.name, "CSI driver is back with another name, other capabilities or in another place");
                    return found;
                }
                Err(error) => {
                    warn!(driver = %known.name, error = %format!("{error:#}"), "CSI driver does not say what it is");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn driver(found: &Connected) -> Option<&str> {
        Some(&found.name)
    }
}

impl DriverSource {
    async fn identify_again(&self, known: &Connected) -> anyhow::Result<Connected> {
        let mut found = identify(&known.anyone).await?;
        if found.name != known.name {
            found = identify(&self.named(&found.name)).await?;
        }
        found.node = self.node_side(&found.anyone).await?;
        Ok(found)
    }

    /// What counts of the node that the driver is on.
    async fn node_side(&self, driver: &Driver) -> anyhow::Result<NodeSide> {
        let NodeFacts { place, capabilities } = self.options.node;
        let mut side = NodeSide::default();
        if place {
            let info = driver.node_info().await.map_err(refused("NodeGetInfo"))?;
            side.place = Some(info.topology);
        }
        if capabilities {
            side.capabilities = match driver.node_capabilities().await {
                Ok(capabilities) => Some(capabilities),
                // A controller may be alone at its socket.
                Err(status) if status.code() == Code::Unimplemented => None,
                Err(status) => return Err(refused("NodeGetCapabilities")(status)),
            };
        }
        Ok(side)
    }

    fn named(&self, name: &str) -> Driver {
        self.dial(true, self.metrics.for_driver(name))
    }

    fn dial(&self, hold: bool, metrics: RpcMetrics) -> Driver {
        let options = wharf_csi::DriverOptions {
            hold,
            timeout: self.options.timeout,
            metrics: Some(metrics),
        };
        Driver::new(&self.options.socket, options)
    }

    async fn wait(&self, driver: &Driver) -> anyhow::Result<()> {
        let socket = self.options.socket.display();
        let mut waited = driver.connected(MENTION).await;
        for _ in 1..MENTIONS {
            if let Err(error) = waited {
                warn!(%socket, %error, "still connecting to the CSI driver");
                waited = driver.connected(MENTION).await;
            }
        }
        waited.with_context(|| {
            format!("the CSI driver does not listen on --csi-address={socket}: is it running?")
        })
    }
}

impl Served for Connected {
    async fn present(&self) {
        self.wait_for(true).await;
    }

    async fn absent_for(&self, time: Duration) {
        loop {
            self.wait_for(false).await;
            let since = self.silence.since().unwrap_or_else(Instant::now);
            if timeout_at(since + time, self.wait_for(true)).await.is_err() {
                return;
            }
        }
    }

    async fn disconnected(&self) {
        // A driver that does not answer may still work on calls. The sender is held by `self`.
        let last = self.last_known.load(Ordering::Relaxed);
        let mut link = self.anyone.link();
        let _ = link.wait_for(|state| generation(state) != last).await;
    }

    fn with_calls(&self, calls: Calls) -> Self {
        Self { driver: self.driver.clone().with_calls(calls), ..self.clone() }
    }

    fn driver_name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn absence(&self) -> Option<String> {
        let (name, socket) = (&self.name, self.anyone.socket().display());
        match generation(&self.anyone.link().borrow()) {
            NONE => Some(format!("CSI driver {name} is not connected at {socket}")),
            generation if generation == *self.known.borrow() => None,
            _ if self.silence.since().is_some() => {
                Some(format!("CSI driver {name} at {socket} does not answer"))
            }
            _ => {
                Some(format!("CSI driver {name} at {socket} has not said that it is the same yet"))
            }
        }
    }
}

impl Connected {
    /// Waits until the driver has answered neither calls nor the Probe for a while. A driver that is asked for nothing is not asked
    /// for its Probe either.
    async fn falls_silent(&self) {
        loop {
            let since = self.silence.lasts(QUIET).await;
            // Whatever it answers ends the silence.
            let _ = timeout(PROBE, self.anyone.probe()).await;
            if self.silence.since() == Some(since) {
                return;
            }
        }
    }

    /// Waits until the connection is, or is not, one on which the driver has said that it is still the same.
    async fn wait_for(&self, present: bool) {
        let (mut link, mut known) = (self.anyone.link(), self.known.subscribe());
        loop {
            link.borrow_and_update();
            known.borrow_and_update();
            if self.absence().is_none() == present {
                return;
            }
            // Neither sender is dropped before this ends.
            tokio::select! {
                _ = link.changed() => {}
                _ = known.changed() => {}
            }
        }
    }

    fn is_same(&self, other: &Connected) -> bool {
        let said = |it: &Connected| (it.name.clone(), it.capabilities.clone(), it.node.clone());
        said(self) == said(other)
    }
}

async fn identify(driver: &Driver) -> anyhow::Result<Connected> {
    probe(driver).await?;
    // Asked for before the answers: they may be of a later connection, never of an earlier one.
    let generation = generation(&driver.link().borrow());
    let name = name(driver).await?;
    let capabilities = driver.capabilities().await.map_err(refused("GetCapabilities"))?;
    let (known, receiver) = watch::channel(generation);
    let silence = Silence::default();
    let driver = driver.clone().with_silence(silence.clone());
    Ok(Connected {
        driver: driver.clone().only_on(receiver),
        name,
        capabilities,
        node: NodeSide::default(),
        anyone: driver,
        known: Arc::new(known),
        last_known: Arc::new(AtomicU64::new(generation)),
        silence,
    })
}

/// Asks until the driver is ready. One that does not answer is not ready yet; one that refuses never will be.
async fn probe(driver: &Driver) -> anyhow::Result<()> {
    loop {
        match driver.probe().await {
            Ok(true) => return Ok(()),
            Ok(false) => info!("CSI driver is not ready"),
            Err(status) if status.code() == Code::DeadlineExceeded => {
                warn!("CSI driver does not answer the probe");
            }
            Err(status) => return Err(refused("Probe")(status)),
        }
        sleep(PAUSE).await;
    }
}

async fn name(driver: &Driver) -> anyhow::Result<String> {
    let info = driver.plugin_info().await.map_err(refused("GetPluginInfo"))?;
    check_driver_name(&info.name).context("GetPluginInfo of the CSI driver")?;
    Ok(info.name)
}

/// Waits until there is another connection than the one of this generation; `false` if there never will be.
async fn lost(driver: &Driver, known: u64) -> bool {
    let mut link = driver.link();
    if link.wait_for(|state| generation(state) != known).await.is_err() {
        return false;
    }
    if generation(&link.borrow()) == NONE {
        warn!(socket = %driver.socket().display(), "lost connection to CSI driver, waiting for it");
    }
    link.wait_for(|state| ![NONE, known].contains(&generation(state))).await.is_ok()
}

/// No connection.
const NONE: u64 = 0;

fn generation(state: &LinkState) -> u64 {
    match state {
        LinkState::Connected { generation } => *generation,
        _ => NONE,
    }
}

/// An error as Go programs write it.
fn refused(call: &'static str) -> impl Fn(Status) -> anyhow::Error {
    move |status| {
        let (code, text) = (code_name(status.code()), status.message());
        anyhow::anyhow!("{call} of the CSI driver: rpc error: code = {code} desc = {text}")
    }
}
