use std::{
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tonic::{Code, Status};
use tracing::{info, warn};
use wharf_proto::pluginregistration::PluginInfo;
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{
    Conversation, Dial, Handlers, ManagerMetrics, Plugin, PluginRefusal,
    plugin_manager::PARALLELISM,
    plugin_state::{Generation, PluginState, Step},
};
use crate::text::readable;

/// How long a new plugin may take to answer, retries included: kubelet's limit for dialling.
const GREETING: Duration = Duration::from_secs(10);
/// The pauses between two attempts within [`GREETING`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Registrations in progress at a time. More of them take longer in total: every connection has its
/// buffers.
pub(crate) const PERMITS: usize = 16;
/// How long a registration waits for a permit. Then it starts without: registrations that never end
/// must not block others.
const PERMIT_PATIENCE: Duration = Duration::from_millis(20);
/// A plugin that serves answers within this time, even among many.
const QUICK: Duration = Duration::from_millis(250);
/// Slower plugins that may be waited for at a time: half of all operations.
pub(crate) const MAX_SLOW: usize = PARALLELISM / 2;
/// Limit for a call of a handler, beyond the handlers' own limits: one that never returns must not
/// block its socket.
const HANDLER_PATIENCE: Duration = Duration::from_mins(5);

/// The longest field that a plugin may return, in bytes: that of the longest path.
const LONGEST_FIELD: usize = 4096;

/// Registers and deregisters the plugin of a socket.
pub(crate) struct Operator {
    pub(crate) state: Arc<PluginState>,
    pub(crate) handlers: Handlers,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) metrics: ManagerMetrics,
    pub(crate) permits: Semaphore,
    /// Permits for plugins that are slow to answer.
    pub(crate) slow: Semaphore,
}

impl Operation<PathBuf> for Operator {
    async fn run(&self, socket: PathBuf, attempt: Attempt) -> Outcome {
        loop {
            match self.state.next_step(&socket) {
                Step::Rest => return Outcome::Done,
                Step::Deregister => self.deregister(&socket).await,
                Step::Register(generation) => {
                    let started = Instant::now();
                    let _witness = PanicWitness { operator: self, socket: &socket };
                    let registering = self.register(&socket, generation, attempt.failures == 0);
                    let result = tokio::select! {
                        biased;
                        // The next run finds the registration incomplete, and deregisters it.
                        () = attempt.superseded.cancelled() => return Outcome::Done,
                        result = registering => result,
                    };
                    if result.is_err() {
                        self.deregister(&socket).await;
                    }
                    return self.settle(&socket, started, result);
                }
            }
        }
    }
}

impl Operator {
    /// Gets the plugin's information, validates, registers and notifies, with kubelet's order,
    /// limits and texts. May be dropped at any await. After it was dropped or has failed, a plugin
    /// in the actual state must be deregistered.
    async fn register(
        &self,
        socket: &Path,
        generation: Generation,
        newly_made: bool,
    ) -> Result<Option<Plugin>, String> {
        let _permit = timeout(PERMIT_PATIENCE, self.permits.acquire()).await;
        let (mut conversation, info) = self.greet(socket, newly_made).await?;
        let shown = socket.display();
        let plugin = plugin_of(socket, info);
        if let Some(reason) = oversized(&plugin) {
            let reason = format!("RegisterPlugin error -- {reason} at socket {shown}");
            return Err(refuse(conversation.as_mut(), socket, reason).await);
        }
        self.state.store_info(socket, &plugin);

        let Some(handler) = self.handlers.get(&plugin.kind) else {
            let reason = format!(
                "RegisterPlugin error -- no handler registered for plugin type: {} at socket {shown}",
                plugin.kind
            );
            return Err(refuse(conversation.as_mut(), socket, reason).await);
        };
        let validated = timeout(HANDLER_PATIENCE, handler.validate(&plugin)).await;
        if let Err(refusal) = validated.unwrap_or_else(|_| Err(overdue("ValidatePlugin"))) {
            let reason =
                format!("RegisterPlugin error -- plugin validation failed with err: {refusal}");
            return Err(refuse(conversation.as_mut(), socket, reason).await);
        }
        // From here on the plugin is in the actual state, so a deregistration follows if this is
        // cut short.
        if !self.state.begin(socket, generation, &plugin, &handler) {
            return Ok(None);
        }
        let registered = timeout(HANDLER_PATIENCE, handler.register(&plugin)).await;
        if let Ok(Err(_)) = registered {
            // A `register` that returned an error has cleaned up.
            self.state.take(socket);
        }
        if let Err(refusal) = registered.unwrap_or_else(|_| Err(overdue("RegisterPlugin"))) {
            let reason =
                format!("RegisterPlugin error -- plugin registration failed with err: {refusal}");
            return Err(refuse(conversation.as_mut(), socket, reason).await);
        }
        if let Err(status) = conversation.notify(true, "").await {
            return Err(format!(
                "RegisterPlugin error -- failed to send registration status at socket {shown}, err: {}",
                describe(&status)
            ));
        }
        self.state.complete(socket);
        Ok(Some(plugin))
    }

    /// Connects and calls `GetInfo`. A plugin may make its socket before it serves, so a new one is
    /// asked repeatedly; later attempts are paced by the back-off.
    ///
    /// Plugins that do not answer must not take all operations: if many are waited for already,
    /// this attempt fails.
    async fn greet(
        &self,
        socket: &Path,
        newly_made: bool,
    ) -> Result<(Box<dyn Conversation>, PluginInfo), String> {
        let mut asking = pin!(self.ask(socket, newly_made));
        if let Ok(answer) = timeout(QUICK, &mut asking).await {
            return answer;
        }
        let Ok(_permit) = self.slow.try_acquire() else {
            return Err(format!(
                "RegisterPlugin error -- no answer within {QUICK:?} at socket {}, and {MAX_SLOW} others give none either",
                socket.display()
            ));
        };
        asking.await
    }

    async fn ask(
        &self,
        socket: &Path,
        newly_made: bool,
    ) -> Result<(Box<dyn Conversation>, PluginInfo), String> {
        let deadline = Instant::now() + GREETING;
        let mut pause = FIRST_PAUSE;
        let shown = socket.display();
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let patience = if newly_made { remaining.max(LAST_PAUSE) } else { LAST_PAUSE };
            let mut conversation = self.dial.dial(socket, patience).await.map_err(|error| {
                format!("RegisterPlugin error -- dial failed at socket {shown}, err: {error}")
            })?;
            match conversation.info().await {
                Ok(info) => return Ok((conversation, info)),
                Err(status)
                    if newly_made && may_pass(&status) && Instant::now() + pause < deadline =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
                Err(status) => {
                    return Err(format!(
                        "RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {shown}, err: {}",
                        describe(&status)
                    ));
                }
            }
        }
    }

    async fn deregister(&self, socket: &Path) {
        let Some((plugin, handler)) = self.state.take(socket) else { return };
        let leaving = handler.deregister(&plugin);
        if timeout(HANDLER_PATIENCE, leaving).await.is_err() {
            warn!(plugin = %plugin.name, socket = %socket.display(), limit = ?HANDLER_PATIENCE,
                "DeRegisterPlugin timed out, ignoring the plugin");
        }
        info!(plugin = %plugin.name, endpoint = %plugin.endpoint, socket = %socket.display(), "plugin deregistered");
        self.metrics.deregistered(&plugin.kind);
        self.state.deregistered(socket, &plugin);
    }

    fn settle(
        &self,
        socket: &Path,
        started: Instant,
        result: Result<Option<Plugin>, String>,
    ) -> Outcome {
        match result {
            Ok(Some(plugin)) => {
                info!(plugin = %plugin.name, r#type = %plugin.kind, endpoint = %plugin.endpoint,
                    socket = %socket.display(), duration = ?started.elapsed(), "plugin registered");
                self.metrics.registered(&plugin.kind, started.elapsed());
                Outcome::Done
            }
            Ok(None) => Outcome::Done,
            Err(error) => {
                let error = readable(&error);
                note_error(&error);
                warn!(socket = %socket.display(), %error, "failed to register plugin, retrying");
                self.metrics.failed();
                self.state.failed(socket, &error);
                Outcome::Retry
            }
        }
    }
}

/// Records a panic of an attempt, which the reconciler logs and counts as a failure.
struct PanicWitness<'a> {
    operator: &'a Operator,
    socket: &'a Path,
}

impl Drop for PanicWitness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.operator.metrics.failed();
            self.operator
                .state
                .failed(self.socket, "RegisterPlugin error -- the handler panicked: see the log");
        }
    }
}

fn plugin_of(socket: &Path, info: PluginInfo) -> Plugin {
    let endpoint =
        if info.endpoint.is_empty() { socket.display().to_string() } else { info.endpoint };
    Plugin {
        kind: info.r#type,
        name: info.name,
        endpoint,
        versions: info.supported_versions,
        socket: socket.to_owned(),
    }
}

/// Names the first field that is too long.
fn oversized(plugin: &Plugin) -> Option<String> {
    let Plugin { kind, name, endpoint, .. } = plugin;
    let lengths = [("type", kind.len()), ("name", name.len()), ("endpoint", endpoint.len())];
    let (field, length) = lengths.into_iter().find(|(_, length)| *length > LONGEST_FIELD)?;
    Some(format!("{field} of GetInfo has {length} bytes: expected at most {LONGEST_FIELD}"))
}

/// Notifies the plugin of the failure; returns the error of the attempt.
async fn refuse(conversation: &mut dyn Conversation, socket: &Path, reason: String) -> String {
    let reason = readable(&reason);
    match conversation.notify(false, &reason).await {
        Ok(()) => reason,
        Err(status) => format!(
            "RegisterPlugin error -- failed to send error at socket {}, err: {reason}: {}",
            socket.display(),
            describe(&status)
        ),
    }
}

fn overdue(what: &str) -> PluginRefusal {
    PluginRefusal(format!("{what} of the handler did not return within {HANDLER_PATIENCE:?}"))
}

/// Whether the plugin may still be starting, so that a later call can succeed.
fn may_pass(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
}

/// As grpc-go prints a status, since the kubelet's texts contain it.
fn describe(status: &Status) -> String {
    format!(
        "rpc error: code = {} desc = {}",
        wharf_uds::code_name(status.code()),
        readable(status.message())
    )
}
