use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tracing::{info, warn};
use wharf_csi::{Driver, DriverOptions};
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};
use wharf_facts::validation::{DriverNameError, check_driver_name};
use wharf_plugin::{Verdict, serve_registration};
use wharf_proto::{
    csi::GetPluginInfoResponse,
    pluginregistration::{
        CSI_PLUGIN, InfoRequest, PluginInfo, registration_client::RegistrationClient,
    },
};
use wharf_uds::{
    Channel, ChannelOptions, DialError, LinkState, ListenError, ListenOptions, Listener,
    RpcMetrics, ServeError, code_name,
};

/// How long the driver may take to open its socket.
const DRIVER_PATIENCE: Duration = Duration::from_secs(30);
/// Time between two log lines about that wait.
const PROGRESS: Duration = Duration::from_secs(10);
/// How long a deleted registration socket stays deleted, in case someone is cleaning up the node.
const RECREATE_AFTER: Duration = Duration::from_secs(1);
/// How long a running call of the kubelet may take when the registrar stops.
const DRAIN: Duration = Duration::from_secs(1);
/// The versions that node-driver-registrar announces for every driver.
const VERSIONS: [&str; 1] = ["1.0.0"];

/// Settings of a registrar.
#[derive(Clone, Debug)]
pub struct RegistrarOptions {
    /// The driver's socket as this process sees it.
    pub csi_address: PathBuf,
    /// The driver's socket as the kubelet sees it; announced as the endpoint.
    pub kubelet_registration_path: String,
    /// The folder for the registration socket as this process sees it.
    pub registration_folder: PathBuf,
    /// Limit for a call to the driver.
    pub timeout: Duration,
    /// Metrics of calls to the driver; `None` exports none.
    pub metrics: Option<RpcMetrics>,
}

/// Why a registrar ended.
#[derive(Debug, thiserror::Error)]
pub enum RegistrarError {
    /// The driver did not open its socket.
    #[error("CSI driver cannot be reached: is it running, and is --csi-address its socket?")]
    NoDriver(#[source] DialError),
    /// `GetPluginInfo` failed.
    #[error("CSI driver at {socket}: GetPluginInfo failed: {code}: {message}", code = code_name(.status.code()), message = .status.message())]
    NoAnswer {
        /// The driver's socket.
        socket: PathBuf,
        /// The driver's answer.
        status: Box<Status>,
    },
    /// The driver returned an empty name.
    #[error("CSI driver at {0}: GetPluginInfo returned an empty name, the driver must have one")]
    NoName(PathBuf),
    /// Kubernetes does not accept the driver's name, which would also be part of a path.
    #[error("CSI driver at {socket}: GetPluginInfo: {error}")]
    BadName {
        /// The driver's socket.
        socket: PathBuf,
        /// The rule that the name breaks.
        error: DriverNameError,
    },
    /// The registration socket cannot be made.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The registration socket cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The kubelet refused the driver.
    #[error("registration process failed with error: {0}; restarting registration container")]
    Refused(String),
}

/// Registers a CSI driver with the kubelet while it runs.
pub struct Registrar {
    options: RegistrarOptions,
    announced: watch::Sender<Option<Announced>>,
}

/// The registration socket, and the driver that it announces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Announced {
    socket: PathBuf,
    name: String,
}

enum Ended {
    Stopped,
    SocketGone,
    DriverChanged(GetPluginInfoResponse),
}

impl Registrar {
    /// A registrar that has not started.
    pub fn new(options: RegistrarOptions) -> Self {
        Self { options, announced: watch::channel(None).0 }
    }

    /// A health check, which outlives the registrar.
    pub fn health(&self) -> RegistrarHealth {
        RegistrarHealth(self.announced.subscribe())
    }

    /// Serves until `stop` is cancelled, then removes the socket. Returns an error if a restart may
    /// help.
    pub async fn run(self, stop: CancellationToken) -> Result<(), RegistrarError> {
        let driver = Driver::new(
            &self.options.csi_address,
            DriverOptions {
                hold: true,
                timeout: self.options.timeout,
                metrics: self.options.metrics.clone(),
            },
        );
        let Some(connected) = stop.run_until_cancelled(wait_for(&driver)).await else {
            return Ok(());
        };
        connected?;
        let mut info = self.ask(&driver).await?;
        loop {
            match self.serve(&driver, &info, &stop).await? {
                Ended::Stopped => return Ok(()),
                Ended::DriverChanged(new) => {
                    info!(name = %new.name, version = %new.vendor_version, "CSI driver changed, registering again");
                    info = new;
                }
                Ended::SocketGone => {
                    self.announced.send_replace(None);
                    let waited = async {
                        tokio::time::sleep(RECREATE_AFTER).await;
                        // A driver that left with its socket is waited for: it may be shutting
                        // down.
                        self.answer(&driver).await
                    };
                    let Some(answer) = stop.run_until_cancelled(waited).await else {
                        return Ok(());
                    };
                    info = answer;
                    info!(name = %info.name, "recreating deleted registration socket");
                }
            }
        }
    }

    /// Serves the registration socket until it is deleted.
    async fn serve(
        &self,
        driver: &Driver,
        info: &GetPluginInfoResponse,
        stop: &CancellationToken,
    ) -> Result<Ended, RegistrarError> {
        let socket = self.options.registration_folder.join(format!("{}-reg.sock", info.name));
        let mut folder = DirWatch::start(Options {
            root: self.options.registration_folder.clone(),
            depth: Depth::Folder,
            kind: Kind::Socket,
            rescan: Duration::from_secs(10),
            create_root: None,
        });
        let listener = Listener::bind(&socket, &ListenOptions::default())?;
        info!(socket = %socket.display(), driver = %info.name, endpoint = %self.options.kubelet_registration_path,
            "registration server started");
        self.announced
            .send_replace(Some(Announced { socket: socket.clone(), name: info.name.clone() }));
        let (routes, mut verdicts) = serve_registration(PluginInfo {
            r#type: CSI_PLUGIN.to_owned(),
            name: info.name.clone(),
            endpoint: self.options.kubelet_registration_path.clone(),
            supported_versions: VERSIONS.map(str::to_owned).to_vec(),
        });
        let serving_stop = stop.child_token();
        let mut serving = std::pin::pin!(listener.serve(routes, DRAIN, serving_stop.clone()));
        let mut link = driver.link();
        link.mark_unchanged();
        let ended = loop {
            tokio::select! {
                served = &mut serving => {
                    served?;
                    folder.stop().await;
                    return Ok(if stop.is_cancelled() { Ended::Stopped } else { Ended::SocketGone });
                }
                Some(verdict) = verdicts.recv() => match verdict {
                    Verdict::Registered => info!(driver = %info.name, "driver is registered"),
                    Verdict::Refused(reason) => break Err(RegistrarError::Refused(reason)),
                },
                Some(change) = folder.next() => if gone(&change, &socket) {
                    break Ok(Ended::SocketGone);
                },
                Ok(()) = link.changed() => {
                    let state = link.borrow_and_update().clone();
                    if let Some(ended) = self.driver_moved(driver, info, &state).await {
                        break Ok(ended);
                    }
                }
            }
        };
        // Send the reply to the kubelet's last call before the socket is closed.
        serving_stop.cancel();
        let served = serving.await;
        folder.stop().await;
        let ended = ended?;
        served?;
        Ok(ended)
    }

    /// After a reconnection: compares the driver with the one that was registered.
    async fn driver_moved(
        &self,
        driver: &Driver,
        known: &GetPluginInfoResponse,
        state: &LinkState,
    ) -> Option<Ended> {
        match state {
            LinkState::Down { error } => {
                warn!(driver = %known.name, %error, "lost connection to CSI driver, retrying");
                None
            }
            LinkState::Connected { .. } => match self.ask(driver).await {
                Ok(info) if info != *known => Some(Ended::DriverChanged(info)),
                Ok(_) => None,
                Err(error) => {
                    warn!(%error, "failed to identify reconnected CSI driver");
                    None
                }
            },
            _ => None,
        }
    }

    async fn ask(&self, driver: &Driver) -> Result<GetPluginInfoResponse, RegistrarError> {
        let socket = || self.options.csi_address.clone();
        let info = driver.plugin_info().await.map_err(|status| RegistrarError::NoAnswer {
            socket: socket(),
            status: Box::new(status),
        })?;
        if info.name.is_empty() {
            return Err(RegistrarError::NoName(socket()));
        }
        check_driver_name(&info.name)
            .map_err(|error| RegistrarError::BadName { socket: socket(), error })?;
        Ok(info)
    }

    /// Calls `GetPluginInfo` until it succeeds; each attempt waits for the connection first.
    async fn answer(&self, driver: &Driver) -> GetPluginInfoResponse {
        let mut pause = Duration::from_millis(20);
        loop {
            if driver.connected(DRIVER_PATIENCE).await.is_ok() {
                match self.ask(driver).await {
                    Ok(info) => return info,
                    Err(error) => {
                        warn!(%error, again_in = ?pause, "failed to identify CSI driver, retrying");
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PROGRESS);
        }
    }
}

/// Checks that a registrar answers on its socket.
#[derive(Clone, Debug)]
pub struct RegistrarHealth(watch::Receiver<Option<Announced>>);

impl RegistrarHealth {
    /// Calls `GetInfo` on the socket. The error is an HTTP status and a text.
    pub async fn check(&self, timeout: Duration) -> Result<(), (u16, String)> {
        let Some(Announced { socket, name }) = self.0.borrow().clone() else {
            return Err((404, "the registration socket does not exist yet".to_owned()));
        };
        if !socket.exists() {
            return Err((404, format!("{} does not exist", socket.display())));
        }
        let channel = Channel::new(&socket, ChannelOptions::default());
        let mut client = RegistrationClient::new(channel);
        match wharf_uds::within(timeout, "GetInfo", client.get_info(InfoRequest {})).await {
            Ok(answer) if answer.get_ref().name == name => Ok(()),
            Ok(answer) => Err((
                500,
                format!("invalid driver name: expected {name:?}, got {:?}", answer.get_ref().name),
            )),
            Err(status) => Err((500, format!("{}: {}", socket.display(), status.message()))),
        }
    }
}

async fn wait_for(driver: &Driver) -> Result<(), RegistrarError> {
    let started = Instant::now();
    loop {
        match driver.connected(PROGRESS).await {
            Ok(()) => return Ok(()),
            Err(error) if started.elapsed() >= DRIVER_PATIENCE => {
                return Err(RegistrarError::NoDriver(error));
            }
            Err(error) => {
                warn!(%error, waited = ?started.elapsed(), "still connecting to CSI driver");
            }
        }
    }
}

/// Whether the socket was deleted.
fn gone(change: &Change, socket: &Path) -> bool {
    match change {
        Change::Vanished { path } => path == socket,
        // A socket deleted before the first scan of the folder is never reported as vanished.
        Change::Synced => !socket.exists(),
        _ => false,
    }
}
