//! The proxy as a process: its socket, its HTTP endpoint, its end.

use std::{net::TcpListener, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use prometheus_client::registry::Registry;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::info;
use wharf_cli::{Admin, BoundAdmin, CheckFailure, process_metrics};
use wharf_criproxy::{Control, Finishing, Proxy, ProxyOptions, SuccessionRequest};
use wharf_uds::LinkState;

use super::{
    notify::Notifier,
    service::Service,
    sockets::{Addresses, Sockets},
    succession::{Requests, Succession},
    successor::Program,
};

/// Default of the time that calls in flight have to finish when the proxy stops.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// Requests for a successor that may wait while one is served.
const REQUESTS: usize = 4;

/// The proxy to run, as its command line asks for it.
pub(super) struct Plan {
    pub(super) listen: PathBuf,
    /// The control socket.
    pub(super) control: PathBuf,
    pub(super) http: Option<String>,
    /// Whether to take over from the running proxy.
    pub(super) take_over: bool,
    /// Time that calls in flight have to finish when the proxy stops.
    pub(super) drain: Duration,
    pub(super) options: ProxyOptions,
}

impl Plan {
    pub(super) async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let Plan { listen, control, http, take_over, drain, options } = self;
        let (runtime, hooks) = (options.runtime.clone(), options.hooks.clone());
        ensure!(
            listen != runtime,
            "--listen and --runtime name the same socket: {}",
            listen.display()
        );
        let program = Program::own();
        let notifier = Notifier::from_env();
        let addresses = Addresses { listen: &listen, control: &control, http: http.as_deref() };
        let mut sockets = Sockets::open(addresses, take_over).await?;
        let mut predecessor = sockets.predecessor.take();
        let options = ProxyOptions { state_is_kept_elsewhere: predecessor.is_some(), ..options };
        let (requests, questions) = mpsc::channel(REQUESTS);
        let requested = Requests::new(questions)?;
        let prepared = prepare(options, requests, http.as_deref(), sockets.http.take()).await;
        let prepared = prepared.and_then(|prepared| Ok((prepared, sockets.control(&control)?)));
        let (prepared, mut questions) = match (prepared, &mut predecessor) {
            (Err(error), Some(predecessor)) => {
                predecessor.fail(&format!("{error:#}")).await;
                return Err(error);
            }
            (prepared, _) => prepared?,
        };
        let (proxy, control_answers, bound_admin) = prepared;
        let finishing = match predecessor {
            Some(predecessor) => Some(predecessor.take(&proxy).await?),
            None => None,
        };
        sockets.keep(&mut questions);
        // A predecessor that died has not reported its successor to the service manager.
        let is_bereft = finishing.as_ref().is_some_and(Finishing::is_bereft);
        let is_announced = sockets.is_announced && !is_bereft;
        info!(
            listen = %listen.display(),
            runtime = %runtime.display(),
            hooks = %hooks.display(),
            "proxy started"
        );

        let listener = sockets.runtime;
        let http_released = stop.child_token();
        let succession = Succession {
            hand_over: proxy.hand_over(),
            listen: listen.clone(),
            control,
            runtime_socket: listener.handle(),
            control_socket: questions.handle(),
            http: match (&bound_admin, http) {
                (Some(admin), Some(address)) => Some((address, admin.socket()?)),
                _ => None,
            },
            http_released: http_released.clone(),
            program,
        };
        let mut serving = JoinSet::new();
        if let Some(admin) = bound_admin {
            info!(address = %admin.local_addr(), "serving /healthz, /readyz and /metrics");
            serving.spawn(admin.serve(http_released));
        }
        let mut answering = JoinSet::new();
        answering.spawn(control_answers.serve(questions, stop.clone()));
        if !is_announced {
            notifier.ready("serving");
        }
        let service = Service { notifier, listen, drain, stop: stop.clone() };
        tokio::try_join!(
            async {
                let served = proxy.serve(listener, drain, stop.clone()).await;
                // Also reached when a successor has taken over and the last call has ended.
                stop.cancel();
                Ok(served?)
            },
            service.supervise(succession, requested, finishing),
        )?;
        serving.join_all().await;
        for answered in answering.join_all().await {
            answered.context("--control")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Builds a proxy that does not serve yet.
async fn prepare(
    options: ProxyOptions,
    requests: mpsc::Sender<SuccessionRequest>,
    http: Option<&str>,
    passed: Option<TcpListener>,
) -> anyhow::Result<(Proxy, Control, Option<BoundAdmin>)> {
    let runtime = options.runtime.display().to_string();
    let proxy = Proxy::start(options).await?;
    let control = proxy.control(requests);
    let Some(address) = http else { return Ok((proxy, control, None)) };
    let mut registry = Registry::default();
    process_metrics(&mut registry);
    proxy.register_metrics(&mut registry);
    let admin = admin(runtime, proxy.link(), control.clone(), registry);
    let bound = match passed {
        Some(listener) => admin.adopt(listener),
        None => admin.bind(address).await,
    };
    Ok((proxy, control, Some(bound.context("--http-endpoint")?)))
}

fn admin(
    runtime: String,
    link: watch::Receiver<LinkState>,
    control: Control,
    registry: Registry,
) -> Admin {
    Admin::new()
        .metrics("/metrics", Arc::new(registry))
        .check("/healthz", || async { Ok(()) })
        .check("/readyz", move || {
            let disconnected = match &*link.borrow() {
                LinkState::Connected { .. } => None,
                LinkState::Down { error } => Some(error.clone()),
                LinkState::Idle | LinkState::Connecting => Some(format!("connecting to {runtime}")),
            };
            let problems: Vec<_> = disconnected.into_iter().chain(control.problems()).collect();
            async move {
                if problems.is_empty() {
                    return Ok(());
                }
                Err(CheckFailure::new(503, problems.join("\n")))
            }
        })
}
