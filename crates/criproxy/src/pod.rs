//! A pod sandbox, as hooks see it and as they change it.

use bytes::Bytes;
use wharf_proto::hooks::{PodSandboxHookRequest, PodSandboxHookResponse, PodSandboxMetadata};
use wharf_wire::{Message, WireError};

use crate::{
    HookPoint,
    edit::{Edit, Field, Value},
    map,
    partial::{self, Inexpressible},
    subject::{Reading, Subject},
};

/// RunPodSandboxRequest.
const CONFIG: u32 = 1;
const RUNTIME_HANDLER: u32 = 2;
/// PodSandboxConfig.
const METADATA: u32 = 1;
const LABELS: u32 = 6;
const ANNOTATIONS: u32 = 7;
const LINUX: u32 = 8;
/// PodSandboxMetadata.
const NAME: u32 = 1;
const UID: u32 = 2;
const NAMESPACE: u32 = 3;
/// LinuxPodSandboxConfig.
const CGROUP_PARENT: u32 = 1;

/// Questions about pod sandboxes.
pub(crate) struct PodSandbox;

impl Subject for PodSandbox {
    type Request = PodSandboxHookRequest;
    type Response = PodSandboxHookResponse;

    /// Labels and annotations are merged key by key, a cgroup parent is taken if there is one.
    /// Resources are not: RunPodSandbox has none that an answer could mean.
    fn edits(
        point: HookPoint,
        sent: &PodSandboxHookRequest,
        answer: &PodSandboxHookResponse,
        _: Reading,
    ) -> Vec<Edit> {
        if point != HookPoint::PreRunPodSandbox {
            return Vec::new();
        }
        let labels = map::merged(&sent.labels, &answer.labels, Field::Label);
        let annotations = map::merged(&sent.annotations, &answer.annotations, Field::Annotation);
        let parent = moved(&sent.cgroup_parent, &answer.cgroup_parent);
        labels.chain(annotations).chain(parent).collect()
    }

    fn named_edits(
        point: HookPoint,
        sent: &PodSandboxHookRequest,
        answer: &PodSandboxHookResponse,
    ) -> Result<Vec<Edit>, Inexpressible> {
        match point {
            HookPoint::PreRunPodSandbox => partial::of_pod(sent, answer),
            _ => Ok(Vec::new()),
        }
    }

    fn fields(request: &PodSandboxHookRequest) -> Vec<(Field, Value)> {
        let labels = map::fields(&request.labels, Field::Label);
        let annotations = map::fields(&request.annotations, Field::Annotation);
        parent_field(&request.cgroup_parent).chain(labels).chain(annotations).collect()
    }

    fn apply(request: &mut PodSandboxHookRequest, edits: &[Edit]) {
        for edit in edits {
            match &edit.field {
                Field::Label(key) => map::apply(&mut request.labels, key, &edit.to),
                Field::Annotation(key) => map::apply(&mut request.annotations, key, &edit.to),
                Field::CgroupParent => {
                    request.cgroup_parent = edit.to.text().unwrap_or_default().to_owned();
                }
                Field::Amount(_) | Field::Cpuset(_) | Field::Unified(_) | Field::Env(_) => {}
            }
        }
    }
}

/// What hooks are told before a RunPodSandbox.
pub(crate) fn asked(run: &Bytes) -> Result<PodSandboxHookRequest, WireError> {
    let mut run = Message::parse(run.clone())?;
    let runtime_handler = map::text(&run, RUNTIME_HANDLER)?;
    let config = run.open(CONFIG)?;
    let metadata = config.open(METADATA)?;
    let pod_meta = PodSandboxMetadata {
        name: map::text(metadata, NAME)?,
        uid: map::text(metadata, UID)?,
        namespace: map::text(metadata, NAMESPACE)?,
        attempt: 0,
    };
    Ok(PodSandboxHookRequest {
        pod_meta: Some(pod_meta),
        runtime_handler,
        labels: map::read(config, LABELS)?,
        annotations: map::read(config, ANNOTATIONS)?,
        cgroup_parent: cgroup_parent(config)?,
        ..Default::default()
    })
}

/// A RunPodSandbox with what hooks changed.
pub(crate) fn edited(run: Bytes, edits: &[Edit]) -> Result<Bytes, WireError> {
    if edits.is_empty() {
        return Ok(run);
    }
    let mut run = Message::parse(run)?;
    write(run.open(CONFIG)?, edits)?;
    Ok(run.encode())
}

/// Brings edits of a pod sandbox into its config, in whichever request that is.
pub(crate) fn write(config: &mut Message, edits: &[Edit]) -> Result<(), WireError> {
    let labels = map::changes(edits, |field| match field {
        Field::Label(key) => Some(key),
        _ => None,
    });
    map::write(config, LABELS, &labels)?;
    map::write(config, ANNOTATIONS, &map::changes(edits, annotation))?;
    write_cgroup_parent(config, edits)
}

/// Brings the last edit of the cgroup parent into a pod sandbox's config.
pub(crate) fn write_cgroup_parent(config: &mut Message, edits: &[Edit]) -> Result<(), WireError> {
    if let Some(parent) = new_cgroup_parent(edits) {
        config.open(LINUX)?.set_bytes(CGROUP_PARENT, parent.as_bytes());
    }
    Ok(())
}

/// The cgroup parent in a pod sandbox's config.
pub(crate) fn cgroup_parent(config: &mut Message) -> Result<String, WireError> {
    map::text(config.open(LINUX)?, CGROUP_PARENT)
}

/// The cgroup parent that edits lead to, if they change it.
pub(crate) fn new_cgroup_parent(edits: &[Edit]) -> Option<&str> {
    let last = edits.iter().rfind(|edit| edit.field == Field::CgroupParent)?;
    Some(last.to.text().unwrap_or_default())
}

/// What an answer's cgroup parent changes.
pub(crate) fn moved(from: &str, to: &str) -> Option<Edit> {
    (!to.is_empty() && to != from).then(|| Edit {
        field: Field::CgroupParent,
        from: Value::Text(from.to_owned()),
        to: Value::Text(to.to_owned()),
    })
}

/// A cgroup parent as a field, if there is one.
pub(crate) fn parent_field(parent: &str) -> impl Iterator<Item = (Field, Value)> {
    let is_there = !parent.is_empty();
    is_there.then(|| (Field::CgroupParent, Value::Text(parent.to_owned()))).into_iter()
}

/// The key of an annotation.
pub(crate) fn annotation(field: &Field) -> Option<&str> {
    match field {
        Field::Annotation(key) => Some(key),
        _ => None,
    }
}

/// What a sandbox has that a config of it lacks: keys, and another cgroup parent. So the changes of
/// hooks that nobody remembers are found, as far as they can be told from what kubelet changed
/// since.
pub(crate) fn lacking(
    config: &mut Message,
    sandbox: &PodSandboxHookRequest,
) -> Result<Vec<Edit>, WireError> {
    let labels = (map::read(config, LABELS)?, &sandbox.labels);
    let annotations = (map::read(config, ANNOTATIONS)?, &sandbox.annotations);
    let mut edits: Vec<_> = map::merged(&labels.0, labels.1, Field::Label)
        .chain(map::merged(&annotations.0, annotations.1, Field::Annotation))
        .filter(|edit| edit.from == Value::Absent)
        .collect();
    edits.extend(moved(&cgroup_parent(config)?, &sandbox.cgroup_parent));
    Ok(edits)
}

#[cfg(test)]
pub(crate) mod tests;
