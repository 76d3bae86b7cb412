//! RestorePod makes a sandbox and its containers at once, from a checkpoint. Hooks are asked as
//! they would be for each of them, so that no hook is gone around by a restore.

use bytes::Bytes;
use prost::Message as _;
use tonic::{Code, Status};
use wharf_proto::{cri::RestorePodResponse, hooks::ContainerResourceHookRequest};
use wharf_uds::RawAnswer;
use wharf_wire::{Message, WireError};

use super::{
    Interceptor,
    intercepted_call::{End, InterceptedCall},
};
use crate::{
    HookPoint,
    chain::Asked,
    container::{self, Container, Creation},
    edit::{Edit, Field},
    pod::{self, PodSandbox},
    record,
};

/// RestorePodRequest.
const CONFIG: u32 = 2;
const RUNTIME_HANDLER: u32 = 3;
const CONTAINERS: u32 = 5;
/// RunPodSandboxRequest.
const RUN_CONFIG: u32 = 1;
const RUN_HANDLER: u32 = 2;
/// CreateContainerRequest.
const CREATE_CONFIG: u32 = 2;
const CREATE_SANDBOX: u32 = 3;

impl Interceptor {
    pub(super) async fn restore_pod(
        &self,
        call: &mut InterceptedCall,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let run = run_of(&message)?;
        let question = pod::asked(&run)?;
        let context = call.pod_context(&question, None);
        let guard = self.guard(call, &context.pod).await?;
        let skipped = self.skip.as_ref().is_some_and(|skip| skip.applies(&question));
        let point = HookPoint::PreRunPodSandbox;
        let Asked { request, edits, by, .. } =
            self.ask::<PodSandbox>(call, point, &context, question, skipped).await?;
        let run = pod::edited(run, &edits)?;
        let sandbox = Message::parse(run)?.bytes(RUN_CONFIG)?.unwrap_or_default();
        let by: Vec<_> = by.iter().map(|server| server.name.as_str()).collect();
        let pod = record::Pod::new(&request, edits).changed_by(by.join(", "));

        let mut restore = Message::parse(message.clone())?;
        let configs = restore.all(CONTAINERS)?;
        let (mut hooked, mut containers) = (Vec::new(), Vec::new());
        for config in &configs {
            let (config, container) =
                self.restored(call, &pod, config.clone(), &sandbox, skipped).await?;
            hooked.push(config);
            containers.push(container);
        }
        // What no hook changed keeps its bytes.
        if restore.bytes(CONFIG)?.unwrap_or_default() != sandbox {
            restore.set_bytes(CONFIG, &sandbox);
        }
        if hooked != configs {
            restore.set_all(CONTAINERS, &hooked);
        }
        let message = if restore.is_changed() { restore.encode() } else { message };
        let answer = call.forward(&self.runtime, &message, guard).await?;
        self.commit_restored(&answer, pod, containers);
        Ok(answer)
    }

    /// A container's config with the changes of hooks, and the container as in their question.
    async fn restored(
        &self,
        call: &mut InterceptedCall,
        pod: &record::Pod,
        config: Bytes,
        sandbox: &Bytes,
        skipped: bool,
    ) -> Result<(Bytes, ContainerResourceHookRequest), End> {
        let mut create = Message::default();
        create.set_bytes(CREATE_CONFIG, &config);
        create.set_bytes(CREATE_SANDBOX, sandbox);
        let create = create.encode();
        let point = HookPoint::PreCreateContainer;
        let Creation { question, .. } = container::creation(&create, pod, false)?;
        let mut context = call.container_context(pod, &question);
        if !skipped && self.chain.tells_details(point) {
            context.details = container::details(&create)?.into();
        }
        let Asked { request, edits, .. } =
            self.ask::<Container>(call, point, &context, question, skipped).await?;
        let is_move = |edit: &&Edit| edit.field == Field::CgroupParent;
        if let Some(edit) = edits.iter().find(is_move) {
            let text = format!(
                "hook server err: {}: a restored container cannot leave its pod's cgroup: change {} \
                 before RunPodSandbox",
                point.name(),
                edit.field
            );
            let note = "refused: a restored container cannot leave its pod's cgroup";
            self.chain.history.note(point, &context, note);
            return Err(Status::failed_precondition(text).into());
        }
        if edits.is_empty() {
            return Ok((config, request));
        }
        let edited = container::edited(create, &[], &edits)?;
        Ok((Message::parse(edited)?.bytes(CREATE_CONFIG)?.unwrap_or_default(), request))
    }

    fn commit_restored(
        &self,
        answer: &RawAnswer,
        pod: record::Pod,
        containers: Vec<ContainerResourceHookRequest>,
    ) {
        let made = (answer.code() == Code::Ok).then(|| answer.message()).flatten();
        let Some(made) = made.and_then(|made| RestorePodResponse::decode(made).ok()) else {
            return;
        };
        if made.pod_sandbox_id.is_empty() {
            return;
        }
        self.records.commit_pod(&made.pod_sandbox_id, pod);
        for container in containers {
            let name = container.container_meta.as_ref().map_or("", |own| &own.name);
            let restored = made.restored_containers.iter().find(|own| own.name == name);
            if let Some(id) = restored.map(|own| &own.container_id).filter(|id| !id.is_empty()) {
                let container = record::Container::new(&made.pod_sandbox_id, id, container);
                self.records.commit_container(container);
            }
        }
    }
}

/// The RunPodSandbox that a RestorePod stands for.
pub(crate) fn run_of(restore: &Bytes) -> Result<Bytes, WireError> {
    let restore = Message::parse(restore.clone())?;
    let mut run = Message::default();
    for (from, to) in [(CONFIG, RUN_CONFIG), (RUNTIME_HANDLER, RUN_HANDLER)] {
        if let Some(bytes) = restore.bytes(from)? {
            run.set_bytes(to, &bytes);
        }
    }
    Ok(run.encode())
}
