//! What `wharf proxy explain` and `tap` show of an intercepted call besides what its hooks came to.

use bytes::Bytes;
use prost::Message as _;
use tokio::time::Instant;
use tonic::Code;
use wharf_proto::cri::RestorePodResponse;
use wharf_uds::RawAnswer;

use super::{
    Interceptor, Method,
    intercepted_call::{End, InterceptedCall},
    made,
    restore::run_of,
};
use crate::{
    HookPoint, container,
    explain::{self, Made},
    id,
    identity::Identity,
    pod, record,
    tap::Tapped,
};

impl Interceptor {
    /// The pod or container that a message is about, as far as it is known without asking the
    /// runtime.
    pub(super) fn identify(&self, method: Method, message: &Bytes) -> Option<Identity> {
        let pod_name = |run: &Bytes| Some(record::full_name(&pod::asked(run).ok()?));
        Some(match method {
            Method::RunPodSandbox => Identity::of_pod(&pod_name(message)?, None),
            Method::RestorePod => Identity::of_pod(&pod_name(&run_of(message).ok()?)?, None),
            Method::StopPodSandbox | Method::RemovePodSandbox => {
                let id = id::of(message).ok()?;
                Identity::of_pod(&self.pod_name(&id), Some(&id))
            }
            Method::CreateContainer => {
                let (id, name) = (id::of(message).ok()?, container::name(message).ok()?);
                Identity::of_container(&self.pod_name(&id), Some(&id), &name, None)
            }
            Method::StartContainer
            | Method::UpdateContainerResources
            | Method::StopContainer
            | Method::RemoveContainer => {
                let id = id::of(message).ok()?;
                let Some(known) = self.records.container(&id) else {
                    return Some(by_id(method, &id));
                };
                let name = known.question().container_meta.map(|own| own.name);
                let (pod, name) = (self.pod_name(known.pod()), name.unwrap_or_default());
                Identity::of_container(&pod, Some(known.pod()), &name, Some(&id))
            }
        })
    }

    /// The name of a pod that is known.
    fn pod_name(&self, id: &str) -> String {
        self.records.pod(id).map(|pod| pod.name().to_owned()).unwrap_or_default()
    }

    /// Ends a call, and keeps how it went.
    pub(super) fn conclude(
        &self,
        call: InterceptedCall,
        method: Method,
        begun: Instant,
        end: Result<RawAnswer, End>,
        tapped: Option<&mut Tapped>,
    ) -> Code {
        let made = end.as_ref().map(|answer| ids(method, answer)).unwrap_or_default();
        let is_abandoned = matches!(end, Err(End::Abandoned));
        let (records, took) = (call.records().clone(), begun.elapsed());
        let (in_hooks, in_runtime) = (call.time().spent(), call.in_runtime());
        let code = call.end(end);
        self.chain.history.ended(&records, method, code, took, &made);
        if let Some(tapped) = tapped {
            tapped.intercepted(in_hooks, in_runtime, is_abandoned, &made);
        }
        code
    }

    /// Keeps that no server is asked about what is known by its id alone.
    pub(super) fn keep_unknown(
        &self,
        point: HookPoint,
        method: Method,
        id: &str,
        records: &explain::OfCall,
        note: String,
    ) {
        self.chain.history.note_of(point, by_id(method, id), records, note);
    }
}

/// What is known by nothing but the id in a request.
fn by_id(method: Method, id: &str) -> Identity {
    let mut identity = Identity::default();
    match method {
        Method::RunPodSandbox
        | Method::RestorePod
        | Method::StopPodSandbox
        | Method::RemovePodSandbox
        | Method::CreateContainer => identity.set_pod_id(id),
        Method::StartContainer
        | Method::UpdateContainerResources
        | Method::StopContainer
        | Method::RemoveContainer => identity.set_container_id(id),
    }
    identity
}

/// The ids of what the runtime has made.
fn ids(method: Method, answer: &RawAnswer) -> Made {
    match method {
        Method::RunPodSandbox => Made { pod: made(answer), ..Made::default() },
        Method::CreateContainer => {
            Made { containers: made(answer).map(|id| (None, id)).into_iter().collect(), pod: None }
        }
        Method::RestorePod if answer.code() == Code::Ok => {
            let message = answer.message().unwrap_or_default();
            let restored = RestorePodResponse::decode(message).unwrap_or_default();
            let pod = Some(restored.pod_sandbox_id).filter(|id| !id.is_empty());
            let containers = restored.restored_containers.into_iter();
            let containers = containers.map(|own| (Some(own.name), own.container_id)).collect();
            Made { pod, containers }
        }
        _ => Made::default(),
    }
}
