//! What is remembered of pods and containers between the calls that concern them.
//!
//! A record is the question that hooks are asked, with their changes in it. At rest it is encoded,
//! which takes a fraction of the memory that maps of strings take, and a container keeps only its
//! own half of it. Records do not change: a new one takes the place of the old one, so whoever holds
//! one holds what was true when it was read.

mod records;

use std::fmt;
use std::sync::Arc;

use prost::Message;
use wharf_proto::hooks::{ContainerResourceHookRequest, PodSandboxHookRequest};

use crate::edit::Edit;

pub(crate) use records::{Rebuild, RecordCounts, Records};

/// A pod sandbox.
pub(crate) struct Pod {
    question: Box<[u8]>,
    carried: Carried,
    stopped: bool,
}

/// What hooks changed of a pod sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// This.
    Known(Box<[Edit]>),
    /// The record was rebuilt from the runtime, which does not tell what was asked of it first.
    Forgotten,
}

impl Pod {
    /// A sandbox that was made as `finally` says, with these changes of hooks.
    pub(crate) fn new(finally: &PodSandboxHookRequest, edits: Vec<Edit>) -> Pod {
        let question = finally.encode_to_vec().into();
        Pod { question, carried: Carried::Known(edits.into()), stopped: false }
    }

    /// A sandbox that the runtime tells of.
    pub(crate) fn rebuilt(question: &PodSandboxHookRequest, stopped: bool) -> Pod {
        let question = question.encode_to_vec().into();
        Pod { question, carried: Carried::Forgotten, stopped }
    }

    /// The same, its post-stop hook done.
    pub(crate) fn stopped(&self) -> Pod {
        Pod { question: self.question.clone(), carried: self.carried.clone(), stopped: true }
    }

    /// Whether its post-stop hook is done.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(crate) fn carried(&self) -> &Carried {
        &self.carried
    }

    /// What hooks are told of it.
    pub(crate) fn question(&self) -> PodSandboxHookRequest {
        PodSandboxHookRequest::decode(&*self.question).expect("a record is our own encoding")
    }
}

/// A container.
pub(crate) struct Container {
    id: Arc<str>,
    pod: Arc<str>,
    question: Box<[u8]>,
    stopped: bool,
}

impl Container {
    /// A container of `pod` that was made as `finally` says, under this id.
    pub(crate) fn new(pod: &str, id: &str, finally: ContainerResourceHookRequest) -> Container {
        let question = own_half(finally);
        Container { id: id.into(), pod: pod.into(), question, stopped: false }
    }

    /// The same, as it is after another call.
    pub(crate) fn now(&self, finally: ContainerResourceHookRequest) -> Container {
        let (id, pod) = (self.id.clone(), self.pod.clone());
        Container { id, pod, question: own_half(finally), stopped: self.stopped }
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

    /// What hooks are told of it.
    pub(crate) fn question(&self, pod: &Pod) -> ContainerResourceHookRequest {
        join(pod.question(), self.own())
    }

    fn own(&self) -> ContainerResourceHookRequest {
        let mut own = ContainerResourceHookRequest::decode(&*self.question)
            .expect("a record is our own encoding");
        own.container_meta.get_or_insert_default().id = self.id.as_ref().to_owned();
        own
    }
}

/// A container's half of a question with that of its pod.
pub(crate) fn join(
    pod: PodSandboxHookRequest,
    own: ContainerResourceHookRequest,
) -> ContainerResourceHookRequest {
    ContainerResourceHookRequest {
        pod_meta: pod.pod_meta,
        pod_labels: pod.labels,
        pod_annotations: pod.annotations,
        pod_resources: pod.resources,
        ..own
    }
}

/// Without what the pod's record holds, and without the id, which is there once for all that name it.
fn own_half(mut finally: ContainerResourceHookRequest) -> Box<[u8]> {
    if let Some(container) = &mut finally.container_meta {
        container.id.clear();
    }
    let own = ContainerResourceHookRequest {
        pod_meta: None,
        pod_labels: Default::default(),
        pod_annotations: Default::default(),
        pod_resources: None,
        ..finally
    };
    own.encode_to_vec().into()
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
            .field("question", &self.own())
            .field("stopped", &self.stopped)
            .finish()
    }
}

#[cfg(test)]
mod tests;
