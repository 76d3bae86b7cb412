//! Containers: questions to hooks, and edits of CRI messages from their answers.

use std::sync::Arc;

use bytes::Bytes;
use wharf_proto::hooks::{
    ContainerDetails, ContainerMetadata, ContainerMount, ContainerResourceHookRequest,
    ContainerResourceHookResponse,
};
use wharf_wire::{Message, WireError};

use crate::{
    HookPoint,
    edit::{Edit, Field, Value},
    env, map,
    partial::{self, Inexpressible},
    pod,
    record::{self, Carried},
    resources,
    subject::{Reading, Subject},
};

/// CreateContainerRequest.
const CONFIG: u32 = 2;
const SANDBOX_CONFIG: u32 = 3;
/// ContainerConfig.
const METADATA: u32 = 1;
const IMAGE: u32 = 2;
const COMMAND: u32 = 3;
const ARGS: u32 = 4;
const MOUNTS: u32 = 7;
const LABELS: u32 = 9;
const ANNOTATIONS: u32 = 10;
const LINUX: u32 = 15;
/// ImageSpec.
const IMAGE_NAME: u32 = 1;
/// Mount.
const CONTAINER_PATH: u32 = 1;
const HOST_PATH: u32 = 2;
const READONLY: u32 = 3;
const MOUNT_IMAGE: u32 = 9;
/// ContainerMetadata.
const NAME: u32 = 1;
const ATTEMPT: u32 = 2;
/// LinuxContainerConfig.
const RESOURCES: u32 = 1;
/// UpdateContainerResourcesRequest.
const UPDATE_LINUX: u32 = 2;
const UPDATE_ANNOTATIONS: u32 = 4;

/// Questions about containers.
pub(crate) struct Container;

impl Subject for Container {
    type Request = ContainerResourceHookRequest;
    type Response = ContainerResourceHookResponse;

    /// Annotations and cgroup v2 files are merged key by key, the environment is replaced as a
    /// whole, and numbers are applied if they are set. At PreStartContainer no change can reach the
    /// runtime, at PreUpdateContainerResources only annotations and resources; other changes go
    /// into the record, where later hooks see them.
    fn edits(
        point: HookPoint,
        sent: &ContainerResourceHookRequest,
        answer: &ContainerResourceHookResponse,
        reading: Reading,
    ) -> Vec<Edit> {
        match point {
            HookPoint::PreCreateContainer
            | HookPoint::PreStartContainer
            | HookPoint::PreUpdateContainerResources => {}
            _ => return Vec::new(),
        }
        let (before, answered) = (&sent.container_annotations, &answer.container_annotations);
        let mut edits: Vec<_> = map::merged(before, answered, Field::Annotation).collect();
        if let Some(answered) = &answer.container_resources {
            let before = sent.container_resources.clone().unwrap_or_default();
            edits.extend(resources::answered(&before, answered, reading));
        }
        edits.extend(pod::moved(&sent.pod_cgroup_parent, &answer.pod_cgroup_parent));
        edits.extend(env::replaced(&sent.container_envs, &answer.container_envs));
        edits
    }

    fn named_edits(
        point: HookPoint,
        sent: &ContainerResourceHookRequest,
        answer: &ContainerResourceHookResponse,
    ) -> Result<Vec<Edit>, Inexpressible> {
        match point {
            HookPoint::PreCreateContainer
            | HookPoint::PreStartContainer
            | HookPoint::PreUpdateContainerResources => partial::of_container(point, sent, answer),
            _ => Ok(Vec::new()),
        }
    }

    fn ignored(
        point: HookPoint,
        sent: &ContainerResourceHookRequest,
        answer: &ContainerResourceHookResponse,
        reading: Reading,
    ) -> Vec<Edit> {
        match (point.is_before(), &answer.container_resources) {
            (true, Some(answered)) => {
                let before = sent.container_resources.clone().unwrap_or_default();
                resources::out_of_range(&before, answered, reading)
            }
            _ => Vec::new(),
        }
    }

    fn fields(request: &ContainerResourceHookRequest) -> Vec<(Field, Value)> {
        let mut fields: Vec<_> = pod::parent_field(&request.pod_cgroup_parent).collect();
        if let Some(resources) = &request.container_resources {
            fields.extend(resources::fields(resources));
        }
        let annotations = map::fields(&request.container_annotations, Field::Annotation);
        let envs = map::fields(&request.container_envs, Field::Env);
        fields.extend(annotations.chain(envs));
        fields
    }

    fn apply(request: &mut ContainerResourceHookRequest, edits: &[Edit]) {
        for edit in edits {
            match &edit.field {
                Field::Annotation(key) => {
                    map::apply(&mut request.container_annotations, key, &edit.to);
                }
                Field::CgroupParent => {
                    request.pod_cgroup_parent = edit.to.text().unwrap_or_default().to_owned();
                }
                Field::Env(key) => map::apply(&mut request.container_envs, key, &edit.to),
                Field::Amount(_) | Field::Cpuset(_) | Field::Unified(_) => {
                    resources::apply(request.container_resources.get_or_insert_default(), edit);
                }
                Field::Label(_) => {}
            }
        }
    }
}

/// A CreateContainer, read for hooks.
#[derive(Debug, PartialEq)]
pub(crate) struct Creation {
    /// The question about it, without the fields about the pod.
    pub(crate) question: ContainerResourceHookRequest,
    /// Changes of the pod sandbox by hooks that the request has to repeat: a runtime places the
    /// container by this request, not by the existing sandbox.
    pub(crate) carried: Arc<[Edit]>,
}

/// Reads a CreateContainer for a pod. With `guessing`, changes of a pod that are not recorded are
/// guessed.
pub(crate) fn creation(
    create: &Bytes,
    pod: &record::Pod,
    guessing: bool,
) -> Result<Creation, WireError> {
    let mut create = Message::parse(create.clone())?;
    let sandbox = create.open(SANDBOX_CONFIG)?;
    let carried = match pod.carried() {
        Carried::Known(edits) => edits.clone(),
        Carried::Forgotten(guess) if guessing => {
            guess.by(&sandbox.encode(), || pod::lacking(sandbox, &pod.question()))?
        }
        Carried::Forgotten(_) => Arc::default(),
    };
    let pod_cgroup_parent = match pod::new_cgroup_parent(&carried) {
        Some(parent) => parent.to_owned(),
        None => pod::cgroup_parent(sandbox)?,
    };
    let config = create.open(CONFIG)?;
    let metadata = config.open(METADATA)?;
    let container_meta = ContainerMetadata {
        name: map::text(metadata, NAME)?,
        attempt: metadata.varint(ATTEMPT)?.unwrap_or_default() as u32,
        id: String::new(),
    };
    let question = ContainerResourceHookRequest {
        container_meta: Some(container_meta),
        container_annotations: map::read(config, ANNOTATIONS)?,
        container_envs: env::read(config)?,
        container_resources: Some(resources::read(config.open(LINUX)?.open(RESOURCES)?)?),
        pod_cgroup_parent,
        ..Default::default()
    };
    Ok(Creation { question, carried })
}

/// The name of the container in a CreateContainer.
pub(crate) fn name(create: &Bytes) -> Result<String, WireError> {
    let mut create = Message::parse(create.clone())?;
    map::text(create.open(CONFIG)?.open(METADATA)?, NAME)
}

/// The details of a CreateContainer, encoded so that they can follow a question.
pub(crate) fn details(create: &Bytes) -> Result<Vec<u8>, WireError> {
    let mut create = Message::parse(create.clone())?;
    let config = create.open(CONFIG)?;
    let image = map::text(config.open(IMAGE)?, IMAGE_NAME)?;
    let mut mounts = Vec::new();
    for mount in config.all(MOUNTS)? {
        let mut mount = Message::parse(mount)?;
        mounts.push(ContainerMount {
            container_path: map::text(&mount, CONTAINER_PATH)?,
            host_path: map::text(&mount, HOST_PATH)?,
            readonly: mount.varint(READONLY)?.unwrap_or_default() != 0,
            image: map::text(mount.open(MOUNT_IMAGE)?, IMAGE_NAME)?,
        });
    }
    let texts = |number| -> Result<Vec<String>, WireError> {
        let texts = config.all(number)?;
        Ok(texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    };
    let details = ContainerDetails {
        image,
        command: texts(COMMAND)?,
        args: texts(ARGS)?,
        labels: map::read(config, LABELS)?,
        mounts,
    };
    let question = ContainerResourceHookRequest { details: Some(details), ..Default::default() };
    Ok(prost::Message::encode_to_vec(&question))
}

/// A CreateContainer with the changes of hooks to its pod, and then to itself.
pub(crate) fn edited(create: Bytes, carried: &[Edit], edits: &[Edit]) -> Result<Bytes, WireError> {
    if carried.is_empty() && edits.is_empty() {
        return Ok(create);
    }
    let mut create = Message::parse(create)?;
    let sandbox = create.open(SANDBOX_CONFIG)?;
    pod::write(sandbox, carried)?;
    pod::write_cgroup_parent(sandbox, edits)?;
    let config = create.open(CONFIG)?;
    map::write(config, ANNOTATIONS, &map::changes(edits, pod::annotation))?;
    env::write(config, edits)?;
    resources::write(config.open(LINUX)?.open(RESOURCES)?, edits)?;
    Ok(create.encode())
}

/// The question before an UpdateContainerResources: the record, with the changes of the request.
pub(crate) fn update_asked(
    update: &Bytes,
    record: &record::Container,
) -> Result<ContainerResourceHookRequest, WireError> {
    let mut update = Message::parse(update.clone())?;
    let update = resources::read(update.open(UPDATE_LINUX)?)?;
    let mut asked = record.question();
    asked.container_resources = Some(match asked.container_resources.take() {
        Some(known) => resources::overlaid(known, &update),
        // The runtime gave no details of its containers: only the request is known.
        None => update,
    });
    Ok(asked)
}

/// An UpdateContainerResources with the changes of hooks. If a koordinator answer had content, the
/// whole record replaces the fields of the request, as servers of koord-runtime-proxy expect;
/// fields that hooks cannot change stay. Empty answers leave the request unchanged, and partial
/// answers write only `edits`.
pub(crate) fn updated(
    update: Bytes,
    finally: &ContainerResourceHookRequest,
    has_content: bool,
    edits: &[Edit],
) -> Result<Bytes, WireError> {
    if !has_content && edits.is_empty() {
        return Ok(update);
    }
    let mut update = Message::parse(update)?;
    if !has_content {
        let annotations = map::changes(edits, pod::annotation);
        map::write(&mut update, UPDATE_ANNOTATIONS, &annotations)?;
        resources::write(update.open(UPDATE_LINUX)?, edits)?;
        return Ok(update.encode());
    }
    map::replace(&mut update, UPDATE_ANNOTATIONS, &finally.container_annotations)?;
    if let Some(whole) = &finally.container_resources {
        resources::replace(update.open(UPDATE_LINUX)?, whole)?;
    }
    Ok(update.encode())
}

#[cfg(test)]
mod tests;
