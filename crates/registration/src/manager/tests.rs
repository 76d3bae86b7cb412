//! Any interleaving of sockets, plugins, handlers and crashes ends with every live plugin
//! registered. Paused time, no file system.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use proptest::{collection::vec, prelude::*, test_runner::FileFailurePersistence};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tonic::Status;
use wharf_proto::pluginregistration::PluginInfo;
use wharf_reconcile::{Backoff, Config, Reconciler};

use super::{
    Conversation, Dial, Handlers, ManagerMetrics, Plugin, PluginHandler, PluginRefusal, State,
    operation::Operator, plugin_manager::Feed, plugin_state::PluginState,
};

/// Longer than the limits of a handler, of [`GREETING`] and of the back-off together.
const CALM: Duration = Duration::from_hours(1);

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn when_things_calm_down_actual_is_desired(acts in vec(act(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(play(acts));
    }
}

#[derive(Clone, Debug)]
enum Act {
    /// A socket is made, or made again, by a plugin of this character.
    Appear(u8, Character),
    Vanish(u8),
    Wait(Duration),
}

/// Behaviour of a plugin and its handler.
#[derive(Clone, Debug)]
struct Character {
    dial: Reaction,
    info: Reaction,
    notify: Reaction,
    validate: Reaction,
    register: Reaction,
    deregister: Reaction,
}

#[derive(Clone, Copy, Debug)]
enum Reaction {
    Well,
    Refuse,
    Late(Duration),
    Hang,
    Panic,
}

fn act() -> impl Strategy<Value = Act> {
    let socket = 0..3u8;
    prop_oneof![
        4 => (socket.clone(), character()).prop_map(|(socket, character)| Act::Appear(socket, character)),
        2 => socket.prop_map(Act::Vanish),
        // Around the limits of the steps, and short enough for the next act to find an operation
        // half done.
        1 => (0..2u64).prop_map(|time| Act::Wait(Duration::from_millis(time))),
        2 => (0..12_000u64).prop_map(|time| Act::Wait(Duration::from_millis(time))),
        1 => (0..400u64).prop_map(|time| Act::Wait(Duration::from_secs(time))),
    ]
}

fn character() -> impl Strategy<Value = Character> {
    let parts = (reaction(), reaction(), reaction(), reaction(), reaction(), reaction());
    parts.prop_map(|(dial, info, notify, validate, register, deregister)| Character {
        dial,
        info,
        notify,
        validate,
        register,
        deregister,
    })
}

fn reaction() -> impl Strategy<Value = Reaction> {
    prop_oneof![
        12 => Just(Reaction::Well),
        2 => Just(Reaction::Refuse),
        3 => (0..3000u64).prop_map(|time| Reaction::Late(Duration::from_millis(time))),
        1 => Just(Reaction::Hang),
        1 => Just(Reaction::Panic),
    ]
}

async fn play(acts: Vec<Act>) {
    let stage = Stage::default();
    let state = Arc::new(PluginState::new());
    let reconciler = Reconciler::start(
        Config { name: "model", parallelism: 2, backoff: Backoff::KUBELET, metrics: None },
        Operator {
            state: Arc::clone(&state),
            handlers: Handlers::new().with("Model", Arc::new(stage.clone())),
            dial: Arc::new(stage.clone()),
            metrics: ManagerMetrics::default(),
            // Fewer permits than sockets, so that some have to wait.
            permits: tokio::sync::Semaphore::new(1),
            slow: tokio::sync::Semaphore::new(1),
        },
    );
    let feed = Feed {
        state: Arc::clone(&state),
        handle: reconciler.handle(),
        synced: watch::channel(false).0,
    };
    for act in acts {
        match act {
            Act::Appear(socket, character) => feed.appeared(stage.live(socket, character)),
            Act::Vanish(socket) => stage.die(socket).into_iter().for_each(|it| feed.vanished(it)),
            Act::Wait(time) => tokio::time::sleep(time).await,
        }
    }
    stage.play(|play| play.calm = true);
    tokio::time::sleep(CALM).await;
    timeout(CALM, reconciler.handle().idle()).await.expect("nothing is stuck");

    let (alive, held, wrong) =
        stage.play(|play| (play.alive.clone(), play.held.clone(), play.wrong.clone()));
    assert_eq!(wrong, [""; 0]);
    let wanted: BTreeMap<_, _> =
        alive.iter().map(|(socket, &life)| (socket.clone(), Held { life, whole: true })).collect();
    assert_eq!(held, wanted, "what the handler holds");
    let view = state.view();
    let view: Vec<_> = view.iter().map(|it| (&it.socket, it.name.as_deref(), it.state)).collect();
    let names: Vec<_> = alive.values().map(usize::to_string).collect();
    let wanted: Vec<_> = alive
        .keys()
        .zip(&names)
        .map(|(socket, name)| (socket, Some(name.as_str()), State::Registered))
        .collect();
    assert_eq!(view, wanted, "what the manager shows");
}

/// The plugins and their handler. Clones share them.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<Play>>);

#[derive(Default)]
struct Play {
    /// Each socket has its own plugin, named by its number.
    characters: Vec<Character>,
    alive: BTreeMap<PathBuf, usize>,
    /// From now on every call succeeds.
    calm: bool,
    /// Sockets with a handler call in progress.
    busy: BTreeMap<PathBuf, &'static str>,
    validated: BTreeMap<PathBuf, usize>,
    held: BTreeMap<PathBuf, Held>,
    /// Handler calls that break the contract.
    wrong: Vec<String>,
}

/// A plugin that the handler must still deregister.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    life: usize,
    /// `register` returned `Ok`.
    whole: bool,
}

impl Stage {
    fn play<T>(&self, act: impl FnOnce(&mut Play) -> T) -> T {
        act(&mut self.0.lock().expect("no panic while it is held"))
    }

    fn live(&self, socket: u8, character: Character) -> PathBuf {
        let socket = path(socket);
        self.play(|play| {
            play.alive.insert(socket.clone(), play.characters.len());
            play.characters.push(character);
        });
        socket
    }

    fn die(&self, socket: u8) -> Option<PathBuf> {
        let socket = path(socket);
        self.play(|play| play.alive.remove(&socket)).map(|_| socket)
    }

    async fn react(&self, life: usize, part: fn(&Character) -> Reaction) -> Result<(), Status> {
        let reaction = self.play(|play| match play.calm {
            true => Reaction::Well,
            false => part(&play.characters[life]),
        });
        match reaction {
            Reaction::Well => Ok(()),
            Reaction::Refuse => Err(Status::unavailable("not now")),
            Reaction::Late(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Reaction::Hang => std::future::pending().await,
            Reaction::Panic => panic!("as the script says"),
        }
    }

    /// Begins a handler call, which ends when the returned guard is dropped.
    fn enter(&self, call: &'static str, plugin: &Plugin) -> (usize, Busy) {
        let life = plugin.name.parse().expect("a number");
        let socket = plugin.socket.clone();
        self.play(|play| {
            if let Some(other) = play.busy.insert(socket.clone(), call) {
                play.wrong.push(format!("{call} {socket:?} {life} during {other}"));
            }
        });
        (life, Busy { stage: self.clone(), socket })
    }
}

struct Busy {
    stage: Stage,
    socket: PathBuf,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stage.play(|play| play.busy.remove(&self.socket));
    }
}

/// A running `deregister`, which only a panic or the handler's time limit may cut.
struct Leaving {
    stage: Stage,
    since: Instant,
    over: bool,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let patience = self.since.elapsed();
        if !self.over && patience < Duration::from_mins(5) && !std::thread::panicking() {
            self.stage.play(|play| play.wrong.push(format!("deregister cut after {patience:?}")));
        }
    }
}

fn path(socket: u8) -> PathBuf {
    PathBuf::from(format!("/r/{socket}.sock"))
}

#[async_trait]
impl PluginHandler for Stage {
    async fn validate(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        let (life, _busy) = self.enter("validate", plugin);
        self.play(|play| {
            play.validated.remove(&plugin.socket);
            if let Some(held) = play.held.get(&plugin.socket) {
                play.wrong.push(format!("validate {life} while {held:?}"));
            }
        });
        self.react(life, |it| it.validate).await.map_err(|it| PluginRefusal::new(it.message()))?;
        self.play(|play| play.validated.insert(plugin.socket.clone(), life));
        Ok(())
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        let (life, _busy) = self.enter("register", plugin);
        self.play(|play| {
            let validated = play.validated.remove(&plugin.socket);
            let held = play.held.insert(plugin.socket.clone(), Held { life, whole: false });
            if validated != Some(life) || held.is_some() {
                play.wrong.push(format!("register {life} after {validated:?} while {held:?}"));
            }
        });
        let outcome = self.react(life, |it| it.register).await;
        self.play(|play| match &outcome {
            Ok(()) => play.held.insert(plugin.socket.clone(), Held { life, whole: true }),
            Err(_) => play.held.remove(&plugin.socket),
        });
        outcome.map_err(|it| PluginRefusal::new(it.message()))
    }

    async fn deregister(&self, plugin: &Plugin) {
        let (life, _busy) = self.enter("deregister", plugin);
        self.play(|play| {
            let held = play.held.remove(&plugin.socket);
            if held.is_none_or(|held| held.life != life) {
                play.wrong.push(format!("deregister {life} while {held:?}"));
            }
        });
        let mut leaving = Leaving { stage: self.clone(), since: Instant::now(), over: false };
        // A handler cannot report that `deregister` failed.
        let _ = self.react(life, |it| it.deregister).await;
        leaving.over = true;
    }
}

#[async_trait]
impl Dial for Stage {
    async fn dial(
        &self,
        socket: &Path,
        patience: Duration,
    ) -> Result<Box<dyn Conversation>, String> {
        let life = self.play(|play| play.alive.get(socket).copied()).ok_or("nobody listens")?;
        match timeout(patience, self.react(life, |it| it.dial)).await {
            Ok(Ok(())) => Ok(Box::new(Talk { stage: self.clone(), life })),
            Ok(Err(status)) => Err(status.message().to_owned()),
            Err(_) => Err("silence".to_owned()),
        }
    }
}

struct Talk {
    stage: Stage,
    life: usize,
}

impl Talk {
    async fn call(&self, limit: u64, part: fn(&Character) -> Reaction) -> Result<(), Status> {
        let call = self.stage.react(self.life, part);
        match timeout(Duration::from_secs(limit), call).await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded("silence")),
        }
    }
}

#[async_trait]
impl Conversation for Talk {
    async fn info(&mut self) -> Result<PluginInfo, Status> {
        self.call(1, |it| it.info).await?;
        Ok(PluginInfo {
            r#type: "Model".to_owned(),
            name: self.life.to_string(),
            ..PluginInfo::default()
        })
    }

    async fn notify(&mut self, _: bool, _: &str) -> Result<(), Status> {
        self.call(5, |it| it.notify).await
    }
}
