//! Desired and actual state, and the pure decision between them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::broadcast;

use super::{EventKind, Plugin, PluginEvent, PluginHandler};

/// Number of a socket: a path that is removed and made again gets another.
pub(crate) type Generation = u64;

/// Events that a slow receiver may lag behind before it misses some.
const EVENT_BACKLOG: usize = 4096;

/// The next step of a socket.
pub(crate) enum Step {
    /// Desired and actual agree.
    Rest,
    /// The registered plugin is not the one that the socket belongs to.
    Deregister,
    /// The socket's plugin is not registered.
    Register(Generation),
}

/// Registration state of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Its socket was found, and its registration is under way.
    Registering,
    /// Its handler has registered it, and it was notified.
    Registered,
    /// The last attempt failed; the next one follows after a back-off.
    Failed,
    /// Its socket was removed, and its handler is deregistering it.
    Deregistering,
}

/// A row of the plugin table.
#[derive(Clone, Debug, Serialize)]
pub struct PluginView {
    /// The registration socket.
    pub socket: PathBuf,
    /// Type; `None` while unknown.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Name; `None` while unknown.
    pub name: Option<String>,
    /// Endpoint; `None` while unknown.
    pub endpoint: Option<String>,
    /// Versions that the plugin supports.
    pub versions: Vec<String>,
    /// Registration state.
    pub state: State,
    /// Time of the last change.
    pub since: Timestamp,
    /// The last error, while the plugin is not registered.
    pub error: Option<String>,
}

/// Every socket that is desired or registered.
pub(crate) struct PluginState {
    sockets: Mutex<BTreeMap<PathBuf, Socket>>,
    /// Counts all sockets: a path that is made again must not get its former generation.
    made: AtomicU64,
    events: broadcast::Sender<PluginEvent>,
}

#[derive(Default)]
struct Socket {
    desired: Option<Generation>,
    actual: Option<Actual>,
    plugin: Option<Plugin>,
    error: Option<String>,
    since: Timestamp,
}

/// A plugin that was passed to its handler.
#[derive(Clone)]
struct Actual {
    generation: Generation,
    /// False from before `register` until the plugin was notified. If an operation finds it false,
    /// an earlier one was cut short.
    complete: bool,
    plugin: Plugin,
    handler: Arc<dyn PluginHandler>,
}

impl PluginState {
    pub(crate) fn new() -> Self {
        Self {
            sockets: Mutex::default(),
            made: AtomicU64::new(0),
            events: broadcast::channel(EVENT_BACKLOG).0,
        }
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<PluginEvent> {
        self.events.subscribe()
    }

    /// A socket was made.
    pub(crate) fn appeared(&self, path: &Path) {
        let mut sockets = self.lock();
        let socket = sockets.entry(path.to_owned()).or_default();
        socket.desired = Some(self.made.fetch_add(1, Ordering::Relaxed) + 1);
        socket.error = None;
        socket.since = Timestamp::now();
        self.publish(path, None, EventKind::Seen);
    }

    /// A socket was removed.
    pub(crate) fn vanished(&self, path: &Path) {
        let mut sockets = self.lock();
        let Some(socket) = sockets.get_mut(path) else { return };
        socket.desired = None;
        let name = socket.plugin.as_ref().map(|plugin| plugin.name.clone());
        Self::forget_if_over(&mut sockets, path);
        self.publish(path, name, EventKind::Gone);
    }

    pub(crate) fn next_step(&self, path: &Path) -> Step {
        let sockets = self.lock();
        let Some(socket) = sockets.get(path) else { return Step::Rest };
        decide(
            socket.desired,
            socket.actual.as_ref().map(|actual| (actual.generation, actual.complete)),
        )
    }

    /// Stores the plugin's answer to `GetInfo`.
    pub(crate) fn store_info(&self, path: &Path, plugin: &Plugin) {
        if let Some(socket) = self.lock().get_mut(path) {
            socket.plugin = Some(plugin.clone());
        }
    }

    /// Must be called before the handler registers a plugin. False if its socket has changed since.
    pub(crate) fn begin(
        &self,
        path: &Path,
        generation: Generation,
        plugin: &Plugin,
        handler: &Arc<dyn PluginHandler>,
    ) -> bool {
        let mut sockets = self.lock();
        let Some(socket) = sockets.get_mut(path) else { return false };
        if socket.desired != Some(generation) {
            return false;
        }
        socket.actual = Some(Actual {
            generation,
            complete: false,
            plugin: plugin.clone(),
            handler: Arc::clone(handler),
        });
        self.publish(path, Some(plugin.name.clone()), EventKind::Validated);
        true
    }

    /// The plugin is registered and was notified.
    pub(crate) fn complete(&self, path: &Path) {
        let mut sockets = self.lock();
        let mut name = None;
        if let Some(socket) = sockets.get_mut(path)
            && let Some(actual) = &mut socket.actual
        {
            actual.complete = true;
            socket.error = None;
            socket.since = Timestamp::now();
            name = Some(actual.plugin.name.clone());
        }
        self.publish(path, name, EventKind::Registered);
    }

    /// Removes a plugin from the actual state and returns it, for its handler to deregister.
    pub(crate) fn take(&self, path: &Path) -> Option<(Plugin, Arc<dyn PluginHandler>)> {
        let mut sockets = self.lock();
        let actual = sockets.get_mut(path)?.actual.take()?;
        Self::forget_if_over(&mut sockets, path);
        Some((actual.plugin, actual.handler))
    }

    pub(crate) fn deregistered(&self, path: &Path, plugin: &Plugin) {
        self.publish(path, Some(plugin.name.clone()), EventKind::Deregistered);
    }

    /// A registration failed.
    pub(crate) fn failed(&self, path: &Path, error: &str) {
        let mut sockets = self.lock();
        let mut name = None;
        if let Some(socket) = sockets.get_mut(path) {
            socket.error = Some(error.to_owned());
            socket.since = Timestamp::now();
            name = socket.plugin.as_ref().map(|plugin| plugin.name.clone());
        }
        self.publish(path, name, EventKind::Failed { error: error.to_owned() });
    }

    /// The plugin table, by socket.
    pub(crate) fn view(&self) -> Vec<PluginView> {
        self.lock().iter().map(|(path, socket)| socket.view(path)).collect()
    }

    /// The sockets of the desired and of the actual state.
    pub(crate) fn totals(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let sockets = self.lock();
        let paths = |wanted: fn(&Socket) -> bool| {
            sockets
                .iter()
                .filter(|(_, socket)| wanted(socket))
                .map(|(path, _)| path.clone())
                .collect()
        };
        (paths(|socket| socket.desired.is_some()), paths(|socket| socket.actual.is_some()))
    }

    /// Called under the lock, so that receivers get events in the order in which they happened.
    fn publish(&self, path: &Path, name: Option<String>, kind: EventKind) {
        // Fails if there are no receivers, which is the usual case.
        let _ = self.events.send(PluginEvent {
            at: Timestamp::now(),
            socket: path.to_owned(),
            name,
            kind,
        });
    }

    fn forget_if_over(sockets: &mut BTreeMap<PathBuf, Socket>, path: &Path) {
        if sockets.get(path).is_some_and(|s| s.desired.is_none() && s.actual.is_none()) {
            sockets.remove(path);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Socket>> {
        // No code that may panic runs under this lock.
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Socket {
    fn view(&self, path: &Path) -> PluginView {
        let plugin = self.actual.as_ref().map(|actual| &actual.plugin).or(self.plugin.as_ref());
        let state = match (&self.desired, &self.actual, &self.error) {
            (None, _, _) => State::Deregistering,
            (Some(desired), Some(actual), _)
                if actual.complete && actual.generation == *desired =>
            {
                State::Registered
            }
            (Some(_), _, Some(_)) => State::Failed,
            _ => State::Registering,
        };
        PluginView {
            socket: path.to_owned(),
            kind: plugin.map(|plugin| plugin.kind.clone()),
            name: plugin.map(|plugin| plugin.name.clone()),
            endpoint: plugin.map(|plugin| plugin.endpoint.clone()),
            versions: plugin.map(|plugin| plugin.versions.clone()).unwrap_or_default(),
            state,
            since: self.since,
            error: self.error.clone().filter(|_| state != State::Registered),
        }
    }
}

/// Decides the next step. `actual` is the registered generation and whether its registration was
/// completed.
fn decide(desired: Option<Generation>, actual: Option<(Generation, bool)>) -> Step {
    match (desired, actual) {
        (Some(wanted), Some((registered, true))) if wanted == registered => Step::Rest,
        (_, Some(_)) => Step::Deregister,
        (Some(wanted), None) => Step::Register(wanted),
        (None, None) => Step::Rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions() {
        let name = |step| match step {
            Step::Rest => "rest",
            Step::Deregister => "deregister",
            Step::Register(_) => "register",
        };
        for (desired, actual, expected) in [
            (None, None, "rest"),
            (Some(1), None, "register"),
            (Some(1), Some((1, true)), "rest"),
            (Some(1), Some((1, false)), "deregister"),
            (Some(2), Some((1, true)), "deregister"),
            (None, Some((1, true)), "deregister"),
            (None, Some((1, false)), "deregister"),
        ] {
            assert_eq!(name(decide(desired, actual)), expected, "{desired:?} {actual:?}");
        }
    }

    /// An operation on the first socket must not mistake the second for it.
    #[test]
    fn a_path_that_was_forgotten_does_not_find_its_old_generation() {
        let state = PluginState::new();
        let path = Path::new("/r/a.sock");
        let making = || match state.next_step(path) {
            Step::Register(generation) => generation,
            _ => panic!("it is to be registered"),
        };
        state.appeared(path);
        let first = making();
        state.vanished(path);
        state.appeared(path);
        assert_ne!(making(), first);
    }

    #[test]
    fn a_socket_that_comes_and_goes_leaves_nothing_behind() {
        let state = PluginState::new();
        let path = Path::new("/r/a.sock");
        state.appeared(path);
        assert_eq!(state.view()[0].state, State::Registering);
        state.failed(path, "no answer");
        assert_eq!(state.view()[0].error.as_deref(), Some("no answer"));
        state.appeared(path);
        assert_eq!(state.view()[0].error, None, "a new generation starts afresh");
        state.vanished(path);
        assert!(state.view().is_empty());
    }
}
