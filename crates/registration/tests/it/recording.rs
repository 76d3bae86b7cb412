//! A handler that records its calls and behaves as scripted.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use tokio::sync::watch;
use wharf_registration::manager::{Plugin, PluginHandler, PluginRefusal};

use crate::support::soon;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Validate,
    Register,
    Deregister,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) step: Step,
    pub(crate) plugin: Plugin,
}

/// The scripted behaviour for plugins of a name.
#[derive(Clone, Debug)]
pub(crate) enum Treatment {
    Refuse(Step, &'static str),
    Hang(Step),
    Panic(Step),
}

/// Clones share the record. Two calls at once for one socket abort all tests.
#[derive(Clone, Default)]
pub(crate) struct RecordingHandler {
    calls: Arc<watch::Sender<Vec<Call>>>,
    treatments: Arc<Mutex<HashMap<String, Treatment>>>,
    busy: Arc<Mutex<HashSet<PathBuf>>>,
}

impl RecordingHandler {
    /// Plugins of this name get this treatment from now on.
    pub(crate) fn treat(&self, name: &str, treatment: Treatment) {
        self.treatments.lock().unwrap().insert(name.to_owned(), treatment);
    }

    /// Plugins of this name are accepted again.
    pub(crate) fn welcome(&self, name: &str) {
        self.treatments.lock().unwrap().remove(name);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.borrow().clone()
    }

    /// The steps that a socket went through.
    pub(crate) fn steps(&self, socket: &Path) -> Vec<Step> {
        steps(&self.calls.borrow(), socket)
    }

    /// Waits until a socket has gone through exactly these steps.
    pub(crate) async fn wait_for(&self, socket: &Path, wanted: &[Step]) {
        let mut calls = self.calls.subscribe();
        let reached = calls.wait_for(|calls| steps(calls, socket) == wanted);
        if tokio::time::timeout(crate::support::DEADLINE, reached).await.is_err() {
            panic!("{} went through {:?}, not {wanted:?}", socket.display(), self.steps(socket));
        }
    }

    /// Waits until a step was called this often, for all sockets together.
    pub(crate) async fn wait_for_count(&self, step: Step, count: usize) {
        let mut calls = self.calls.subscribe();
        let reached =
            |calls: &Vec<Call>| calls.iter().filter(|it| it.step == step).count() >= count;
        soon(calls.wait_for(reached)).await.unwrap();
    }

    async fn called(&self, step: Step, plugin: &Plugin) -> Result<(), PluginRefusal> {
        let _busy = Busy::enter(&self.busy, &plugin.socket);
        self.calls.send_modify(|calls| calls.push(Call { step, plugin: plugin.clone() }));
        let treatment = self.treatments.lock().unwrap().get(&plugin.name).cloned();
        match treatment {
            Some(Treatment::Refuse(when, reason)) if when == step => {
                Err(PluginRefusal::new(reason))
            }
            Some(Treatment::Hang(when)) if when == step => std::future::pending().await,
            Some(Treatment::Panic(when)) if when == step => panic!("as the script says"),
            _ => Ok(()),
        }
    }
}

fn steps(calls: &[Call], socket: &Path) -> Vec<Step> {
    calls.iter().filter(|call| call.plugin.socket == socket).map(|call| call.step).collect()
}

#[async_trait]
impl PluginHandler for RecordingHandler {
    async fn validate(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        self.called(Step::Validate, plugin).await
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        self.called(Step::Register, plugin).await
    }

    async fn deregister(&self, plugin: &Plugin) {
        // `deregister` cannot return a refusal.
        let _ = self.called(Step::Deregister, plugin).await;
    }
}

struct Busy<'a> {
    sockets: &'a Mutex<HashSet<PathBuf>>,
    socket: &'a Path,
}

impl<'a> Busy<'a> {
    fn enter(sockets: &'a Mutex<HashSet<PathBuf>>, socket: &'a Path) -> Self {
        if !sockets.lock().unwrap().insert(socket.to_owned()) {
            // A panic would be caught and counted as a failed operation.
            eprintln!("two calls at once for {}", socket.display());
            std::process::abort();
        }
        Busy { sockets, socket }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.sockets.lock().unwrap().remove(self.socket);
    }
}
