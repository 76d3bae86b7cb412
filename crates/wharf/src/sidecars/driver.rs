//! A sidecar's connection to its driver: waits for the driver at the start, and confirms its name
//! and capabilities after each reconnect.

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

use super::controller::{Target, TargetSource};

/// Interval at which the wait for the driver's socket is logged, and the number of intervals after
/// which the wait fails.
const MENTION: Duration = Duration::from_secs(10);
const MENTIONS: usize = 3;
/// Pause between two calls to a driver that is not ready.
const PAUSE: Duration = Duration::from_secs(1);
/// A driver that has answered no call for this long gets a Probe. A call may take longer: then the
/// driver answers the Probe.
const QUIET: Duration = Duration::from_secs(5);
/// A driver that does not answer the Probe within this time counts as disconnected. livenessprobe
/// has the same limit.
const PROBE: Duration = Duration::from_secs(3);

/// The driver's socket, and limits of calls to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DriverOptions {
    pub(super) socket: PathBuf,
    /// How long a call may take.
    pub(super) timeout: Duration,
    /// The facts of the driver's node whose change restarts the controllers.
    pub(super) node: NodeFacts,
}

/// The facts of a driver's node whose change restarts the controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    /// Its topology, where only that node is served.
    pub(super) place: bool,
    /// The node capabilities of the driver.
    pub(super) capabilities: bool,
}

/// The driver's answers about its node, as far as [`NodeFacts`] asks for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeSide {
    place: Option<BTreeMap<String, String>>,
    capabilities: Option<NodeCapabilities>,
}

/// Finds the driver at a socket, whatever its name.
pub(super) struct DriverSource {
    options: DriverOptions,
    metrics: RpcMetrics,
}

/// A driver whose name and capabilities are known.
#[derive(Clone, Debug)]
pub(super) struct ConnectedDriver {
    /// For controllers: makes calls only on connections on which the driver's name and capabilities
    /// are confirmed.
    pub(super) driver: Driver,
    pub(super) name: String,
    pub(super) capabilities: Capabilities,
    node: NodeSide,
    /// For identification: makes calls on any connection.
    anyone: Driver,
    /// Generation of the confirmed connection; [`NONE`] while the driver does not answer.
    known: Arc<watch::Sender<u64>>,
    /// Generation of the last confirmed connection, also while the driver does not answer.
    last_known: Arc<AtomicU64>,
    /// Since when the driver has not answered.
    silence: Silence,
}

impl TargetSource for DriverSource {
    type Options = DriverOptions;
    type Target = ConnectedDriver;

    fn new(options: DriverOptions, metrics: RpcMetrics) -> Self {
        Self { options, metrics }
    }

    /// Waits for the socket for 30 s, then for the driver to be ready, and identifies the driver.
    async fn connect(&self) -> anyhow::Result<ConnectedDriver> {
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
        // A driver that does not answer here is asked again by the controller that needs it.
        connected.node = self.node_side(&connected.anyone).await.unwrap_or_default();
        info!(driver = %name, "CSI driver is ready");
        Ok(connected)
    }

    /// Waits until the driver has come back with another name, other capabilities or another
    /// topology. While it is disconnected, and when it comes back unchanged, controllers go on:
    /// their calls fail and are retried. A driver that does not answer counts as disconnected.
    async fn changed(&self, known: &ConnectedDriver) -> ConnectedDriver {
        loop {
            let generation = *known.known.borrow();
            tokio::select! {
                is_lost = lost(&known.anyone, generation) => if !is_lost {
                    // Unreachable: `known` holds the channel.
                    return std::future::pending().await;
                },
                () = known.falls_silent() => {
                    warn!(driver = %known.name, "CSI driver does not answer, waiting for it");
                    known.known.send_replace(NONE);
                }
            }
            match self.identify_again(known).await {
                Ok(found) if found.is_same(known) => {
                    info!(driver = %known.name, "CSI driver is back, unchanged");
                    let generation = *found.known.borrow();
                    known.last_known.store(generation, Ordering::Relaxed);
                    known.known.send_replace(generation);
                }
                Ok(found) => {
                    warn!(driver = %found.name, was = %known.name, "CSI driver is back with another name, capabilities or topology");
                    return found;
                }
                Err(error) => {
                    warn!(driver = %known.name, error = %format!("{error:#}"), "failed to identify CSI driver, retrying");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn driver(found: &ConnectedDriver) -> Option<&str> {
        Some(&found.name)
    }
}

impl DriverSource {
    async fn identify_again(&self, known: &ConnectedDriver) -> anyhow::Result<ConnectedDriver> {
        let mut found = identify(&known.anyone).await?;
        if found.name != known.name {
            found = identify(&self.named(&found.name)).await?;
        }
        found.node = self.node_side(&found.anyone).await?;
        Ok(found)
    }

    /// Asks the driver for the facts of its node that the controllers need.
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
                // The socket may serve the controller service alone.
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
                warn!(%socket, %error, "failed to connect to CSI driver, retrying");
                waited = driver.connected(MENTION).await;
            }
        }
        waited.with_context(|| {
            format!("the CSI driver does not listen on --csi-address={socket}: is it running?")
        })
    }
}

impl Target for ConnectedDriver {
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
        // A driver that does not answer may still work on calls, so only a closed connection
        // counts. `self` holds the sender.
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
            _ => Some(format!("CSI driver {name} at {socket} has not confirmed its name yet")),
        }
    }
}

impl ConnectedDriver {
    /// Waits until the driver has answered neither calls nor the Probe within [`QUIET`] and
    /// [`PROBE`]. A driver without calls under way gets no Probe either.
    async fn falls_silent(&self) {
        loop {
            let since = self.silence.lasts(QUIET).await;
            // Any answer ends the silence, also an error.
            let _ = timeout(PROBE, self.anyone.probe()).await;
            if self.silence.since() == Some(since) {
                return;
            }
        }
    }

    /// Waits until the connection is confirmed, or until it is not.
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

    fn is_same(&self, other: &ConnectedDriver) -> bool {
        let facts = |it: &Self| (it.name.clone(), it.capabilities.clone(), it.node.clone());
        facts(self) == facts(other)
    }
}

async fn identify(driver: &Driver) -> anyhow::Result<ConnectedDriver> {
    probe(driver).await?;
    // Read before the calls: answers may come from a later connection, never from an earlier one.
    let generation = generation(&driver.link().borrow());
    let name = name(driver).await?;
    let capabilities = driver.capabilities().await.map_err(refused("GetCapabilities"))?;
    let (known, receiver) = watch::channel(generation);
    let silence = Silence::default();
    let driver = driver.clone().with_silence(silence.clone());
    Ok(ConnectedDriver {
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

/// Calls Probe until the driver is ready. A driver that does not answer is not ready yet; one that
/// answers with an error never becomes ready.
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

/// Waits for the next connection after generation `known`; `false` if the link is closed for good.
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

/// The generation of no connection.
const NONE: u64 = 0;

fn generation(state: &LinkState) -> u64 {
    match state {
        LinkState::Connected { generation } => *generation,
        _ => NONE,
    }
}

/// The error of a call, in the form of Go programs.
fn refused(call: &'static str) -> impl Fn(Status) -> anyhow::Error {
    move |status| {
        let (code, text) = (code_name(status.code()), status.message());
        anyhow::anyhow!("{call} of the CSI driver: rpc error: code = {code} desc = {text}")
    }
}
