//! What is remembered of pods and containers between the calls that concern them.
//!
//! A record is the question that hooks are asked, with their changes in it. At rest it is encoded,
//! which takes a fraction of the memory that maps of strings take. A container keeps only its own
//! half of it, and the half that is its pod's is never decoded for it: protobuf has messages
//! joined by putting their bytes together. Records do not change: a new one takes the place of the
//! old one, so whoever holds one holds what was true when it was read.

mod records;
mod transfer;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use prost::Message;
use wharf_proto::hooks::{ContainerResourceHookRequest, PodSandboxHookRequest};

use crate::{edit::Edit, intercept::Skip};

pub(crate) use records::{Rebuild, RecordCounts, Records, Vanished};
pub(crate) use transfer::Entry;

/// A pod sandbox.
pub(crate) struct Pod {
    name: Box<str>,
    /// The half of its containers' questions that is about the pod.
    encoded_pod: Arc<[u8]>,
    /// What its own question holds beside that.
    rest: Box<[u8]>,
    carried: Carried,
    /// The servers whose changes are carried; nobody, if that is not known.
    changed_by: Box<str>,
    stopped: bool,
    skipped: OnceLock<bool>,
}

/// What hooks changed of a pod sandbox.
#[derive(Debug)]
pub(crate) enum Carried {
    /// This.
    Known(Arc<[Edit]>),
    /// The record was rebuilt from the runtime, which does not tell what was asked of it first.
    Forgotten(Guess),
}

/// What hooks seem to have changed, by a config that callers repeat for each container of the pod.
#[derive(Debug, Default)]
pub(crate) struct Guess(OnceLock<(Bytes, Arc<[Edit]>)>);

impl Guess {
    /// That of the first config that was looked at, if it is this one again, or what `look` finds.
    pub(crate) fn by<E>(
        &self,
        config: &[u8],
        look: impl FnOnce() -> Result<Vec<Edit>, E>,
    ) -> Result<Arc<[Edit]>, E> {
        if let Some((_, edits)) = self.0.get().filter(|(known, _)| known == config) {
            return Ok(edits.clone());
        }
        let edits: Arc<[Edit]> = look()?.into();
        // A copy: the bytes may be part of a message that is far larger.
        self.0.get_or_init(|| (Bytes::copy_from_slice(config), edits.clone()));
        Ok(edits)
    }
}

impl Pod {
    /// A sandbox that was made as `finally` says, with these changes of hooks.
    pub(crate) fn new(finally: &PodSandboxHookRequest, edits: Vec<Edit>) -> Self {
        Self::of(finally, Carried::Known(edits.into()), false)
    }

    /// A sandbox rebuilt from the runtime.
    pub(crate) fn rebuilt(question: &PodSandboxHookRequest, stopped: bool) -> Self {
        Self::of(question, Carried::Forgotten(Guess::default()), stopped)
    }

    fn of(question: &PodSandboxHookRequest, carried: Carried, stopped: bool) -> Self {
        let mut rest = question.clone();
        let encoded_pod = ContainerResourceHookRequest {
            pod_meta: rest.pod_meta.take(),
            pod_labels: std::mem::take(&mut rest.labels),
            pod_annotations: std::mem::take(&mut rest.annotations),
            pod_resources: rest.resources.take(),
            ..Default::default()
        };
        Self {
            name: full_name(question).into(),
            encoded_pod: encoded_pod.encode_to_vec().into(),
            rest: rest.encode_to_vec().into(),
            carried,
            changed_by: Box::default(),
            stopped,
            skipped: OnceLock::new(),
        }
    }

    /// The same, with the names of those who changed it.
    pub(crate) fn changed_by(self, servers: String) -> Pod {
        Pod { changed_by: servers.into(), ..self }
    }

    /// Those who changed it, unless nobody did or it is not known.
    pub(crate) fn who_changed_it(&self) -> Option<&str> {
        Some(&*self.changed_by).filter(|servers| !servers.is_empty())
    }

    /// The same, its post-stop hook done.
    pub(crate) fn stopped(&self) -> Pod {
        let carried = match &self.carried {
            Carried::Known(edits) => Carried::Known(edits.clone()),
            Carried::Forgotten(_) => Carried::Forgotten(Guess::default()),
        };
        let (name, encoded_pod, rest) =
            (self.name.clone(), self.encoded_pod.clone(), self.rest.clone());
        let (changed_by, skipped) = (self.changed_by.clone(), self.skipped.clone());
        Pod { name, encoded_pod, rest, carried, changed_by, stopped: true, skipped }
    }

    /// Whether its post-stop hook is done.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Its name as `namespace/name`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it wants no hooks, by the one `skip` that there is in a process.
    pub(crate) fn is_skipped(&self, skip: Option<&Skip>) -> bool {
        let Some(skip) = skip else { return false };
        *self.skipped.get_or_init(|| skip.applies(&self.question()))
    }

    pub(crate) fn carried(&self) -> &Carried {
        &self.carried
    }

    /// The question about it.
    pub(crate) fn question(&self) -> PodSandboxHookRequest {
        let encoded_pod = container_question(&self.encoded_pod);
        let rest = PodSandboxHookRequest::decode(&*self.rest).expect(OURS);
        PodSandboxHookRequest {
            pod_meta: encoded_pod.pod_meta,
            labels: encoded_pod.pod_labels,
            annotations: encoded_pod.pod_annotations,
            resources: encoded_pod.pod_resources,
            ..rest
        }
    }

    /// The encoded fields about the pod in a question about a container.
    pub(crate) fn encoded_pod(&self) -> &Arc<[u8]> {
        &self.encoded_pod
    }
}

/// A pod as `namespace/name`.
pub(crate) fn full_name(pod: &PodSandboxHookRequest) -> String {
    let name = pod.pod_meta.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name));
    name.unwrap_or_default()
}

const OURS: &str = "a record is our own encoding";

fn container_question(bytes: &[u8]) -> ContainerResourceHookRequest {
    ContainerResourceHookRequest::decode(bytes).expect(OURS)
}

/// A container.
pub(crate) struct Container {
    id: Arc<str>,
    pod: Arc<str>,
    question: Box<[u8]>,
    stopped: bool,
}

impl Container {
    /// A container of `pod` that was made as `finally` says, under this id. What it says of the pod
    /// is the pod's.
    pub(crate) fn new(pod: &str, id: &str, finally: ContainerResourceHookRequest) -> Self {
        let question = at_rest(finally);
        Self { id: id.into(), pod: pod.into(), question, stopped: false }
    }

    /// The same, as it is after another call.
    pub(crate) fn now(&self, finally: ContainerResourceHookRequest) -> Container {
        let (id, pod) = (self.id.clone(), self.pod.clone());
        Container { id, pod, question: at_rest(finally), stopped: self.stopped }
    }

    /// The same, its post-stop hook done.
    pub(crate) fn stopped(&self) -> Container {
        let (id, pod) = (self.id.clone(), self.pod.clone());
        Container { id, pod, question: self.question.clone(), stopped: true }
    }

    /// Whether its post-stop hook is done.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The id of its pod.
    pub(crate) fn pod(&self) -> &str {
        &self.pod
    }

    /// The question about it, without the fields about the pod.
    pub(crate) fn question(&self) -> ContainerResourceHookRequest {
        let mut own = container_question(&self.question);
        own.container_meta.get_or_insert_default().id = self.id.as_ref().to_owned();
        own
    }
}

/// Without the id, which is there once for all that name it.
fn at_rest(mut finally: ContainerResourceHookRequest) -> Box<[u8]> {
    if let Some(container) = &mut finally.container_meta {
        container.id.clear();
    }
    finally.encode_to_vec().into()
}

impl fmt::Debug for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pod")
            .field("question", &self.question())
            .field("carried", &self.carried)
            .field("stopped", &self.stopped)
            .finish()
    }
}

impl fmt::Debug for Container {
    /// The message's own Debug keeps the values of the environment to itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Container")
            .field("pod", &self.pod)
            .field("question", &self.question())
            .field("stopped", &self.stopped)
            .finish()
    }
}

#[cfg(test)]
mod tests;
