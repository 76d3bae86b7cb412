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
    Conversation, Dial, Handlers, ManagerMetrics, Plugin, Refusal,
    running::PARALLELISM,
    world::{Generation, Step, World},
};
use crate::text::readable;

/// How long a plugin that just came may take until it answers. Kubelet's dial limit, spent on asking again, too.
const GREETING: Duration = Duration::from_secs(10);
/// The pauses between two questions within [`GREETING`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// Registrations that go ahead at once. A crowd that talks all at the same time is done later than one that takes turns:
/// every connection has its buffers.
pub(crate) const TURNS: usize = 16;
/// How long a registration waits for its turn. Those that never end must not hold up the others.
const TURN_PATIENCE: Duration = Duration::from_millis(20);
/// A plugin that serves answers in this time, also in a crowd.
const QUICK: Duration = Duration::from_millis(250);
/// Plugins that are waited for after that, half of all operations.
pub(crate) const SILENT: usize = PARALLELISM / 2;
/// A handler that never returns must not hold its socket for ever. Beyond any handler's own limits.
const HANDLER_PATIENCE: Duration = Duration::from_mins(5);

/// The most bytes of one field that a plugin may say about itself: paths, the longest of them, have as many.
const LONGEST_FIELD: usize = 4096;

/// Brings one socket from actual to desired.
pub(crate) struct Operator {
    pub(crate) world: Arc<World>,
    pub(crate) handlers: Handlers,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) metrics: ManagerMetrics,
    pub(crate) turns: Semaphore,
    /// Places for plugins that are slow to answer.
    pub(crate) silent: Semaphore,
}

impl Operation<PathBuf> for Operator {
    async fn run(&self, socket: PathBuf, attempt: Attempt) -> Outcome {
        loop {
            match self.world.next_step(&socket) {
                Step::Rest => return Outcome::Done,
                Step::Deregister => self.deregister(&socket).await,
                Step::Register(generation) => {
                    let started = Instant::now();
                    let _witness = PanicWitness { operator: self, socket: &socket };
                    let registering = self.register(&socket, generation, attempt.failures == 0);
                    let result = tokio::select! {
                        biased;
                        // What was begun is found incomplete by the next run, which deregisters it.
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
    /// Asks, validates, registers and notifies, with kubelet's order, limits and texts. May be dropped at any await.
    /// What it leaves in the actual state, dropped or failed, is to be deregistered.
    async fn register(
        &self,
        socket: &Path,
        generation: Generation,
        newly_made: bool,
    ) -> Result<Option<Plugin>, String> {
        let _turn = timeout(TURN_PATIENCE, self.turns.acquire()).await;
        let (mut conversation, info) = self.greet(socket, newly_made).await?;
        let shown = socket.display();
        let plugin = introduce(socket, info);
        if let Some(reason) = oversized(&plugin) {
            let reason = format!("RegisterPlugin error -- {reason} at socket {shown}");
            return Err(refuse(conversation.as_mut(), socket, reason).await);
        }
        self.world.introduced(socket, &plugin);

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
        // From here on the plugin is in the actual state: whatever cuts this short, a deregistration follows.
        if !self.world.begin(socket, generation, &plugin, &handler) {
            return Ok(None);
        }
        let registered = timeout(HANDLER_PATIENCE, handler.register(&plugin)).await;
        if let Ok(Err(_)) = registered {
            // It cleaned up after itself, as one that was cut short could not.
            self.world.take(socket);
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
        self.world.complete(socket);
        Ok(Some(plugin))
    }

    /// Connects and asks who it is. A plugin that just made its socket may not be serving yet, so it is asked again
    /// for a while; after that the back-off sets the pace.
    ///
    /// Sockets that say nothing must not take all places: if many wait already, this one is tried again later.
    async fn greet(
        &self,
        socket: &Path,
        newly_made: bool,
    ) -> Result<(Box<dyn Conversation>, PluginInfo), String> {
        let mut asking = pin!(self.ask(socket, newly_made));
        if let Ok(answer) = timeout(QUICK, &mut asking).await {
            return answer;
        }
        let Ok(_place) = self.silent.try_acquire() else {
            return Err(format!(
                "RegisterPlugin error -- no answer within {QUICK:?} at socket {}, and {SILENT} others give none either",
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
        let Some((plugin, handler)) = self.world.take(socket) else { return };
        let leaving = handler.deregister(&plugin);
        if timeout(HANDLER_PATIENCE, leaving).await.is_err() {
            warn!(plugin = %plugin.name, socket = %socket.display(), limit = ?HANDLER_PATIENCE,
                "DeRegisterPlugin did not return, going on without it");
        }
        info!(plugin = %plugin.name, endpoint = %plugin.endpoint, socket = %socket.display(), "plugin deregistered");
        self.metrics.deregistered(&plugin.kind);
        self.world.deregistered(socket, &plugin);
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
                    socket = %socket.display(), took = ?started.elapsed(), "plugin registered");
                self.metrics.registered(&plugin.kind, started.elapsed());
                Outcome::Done
            }
            Ok(None) => Outcome::Done,
            Err(error) => {
                let error = readable(&error);
                note_error(&error);
                warn!(socket = %socket.display(), %error, "plugin not registered, will be tried again");
                self.metrics.failed();
                self.world.failed(socket, &error);
                Outcome::Retry
            }
        }
    }
}

/// Lets people see that an attempt ended in a panic, which the reconcile kernel logs and takes for a failure.
struct PanicWitness<'a> {
    operator: &'a Operator,
    socket: &'a Path,
}

impl Drop for PanicWitness<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.operator.metrics.failed();
            self.operator.world.failed(
                self.socket,
                "RegisterPlugin error -- the handler panicked, the log says how",
            );
        }
    }
}

fn introduce(socket: &Path, info: PluginInfo) -> Plugin {
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

/// Says which field of an answer is too long to be kept for a plugin, whatever its type.
fn oversized(plugin: &Plugin) -> Option<String> {
    let Plugin { kind, name, endpoint, .. } = plugin;
    let lengths = [("type", kind.len()), ("name", name.len()), ("endpoint", endpoint.len())];
    let (field, length) = lengths.into_iter().find(|(_, length)| *length > LONGEST_FIELD)?;
    Some(format!("{field} of GetInfo has {length} bytes: expected at most {LONGEST_FIELD}"))
}

/// Tells the plugin why it is refused; what comes back is the error of the attempt.
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

fn overdue(what: &str) -> Refusal {
    Refusal(format!("{what} of the handler did not return within {HANDLER_PATIENCE:?}"))
}

/// Errors of a plugin that is still starting, as opposed to one that has nothing to say.
fn may_pass(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
}

/// As grpc-go prints a status, so that people find what they know in logs.
fn describe(status: &Status) -> String {
    format!(
        "rpc error: code = {} desc = {}",
        wharf_uds::code_name(status.code()),
        readable(status.message())
    )
}
