//! Pod sandboxes: made, stopped and removed.

use bytes::Bytes;
use futures_util::future::join_all;
use tonic::{Code, Status};
use wharf_uds::RawAnswer;

use super::{
    Interceptor, Method,
    intercepted_call::{End, InterceptedCall},
    made,
};
use crate::{
    HookPoint,
    chain::{Asked, CallContext, Outcome},
    id,
    pod::{self, PodSandbox},
    rebuild::Found,
    record::Pod,
};

impl Interceptor {
    pub(super) async fn run_pod(
        &self,
        call: &mut InterceptedCall,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let question = pod::asked(&message)?;
        let context = call.pod_context(&question, None);
        let guard = self.guard(call, &context.pod).await?;
        let skipped = self.skip.as_ref().is_some_and(|skip| skip.applies(&question));
        let point = HookPoint::PreRunPodSandbox;
        let Asked { request, edits, by, .. } =
            self.ask::<PodSandbox>(call, point, &context, question, skipped).await?;
        let message = pod::edited(message, &edits)?;
        let answer = call.forward(&self.runtime, &message, guard).await?;
        if let Some(id) = made(&answer) {
            let by: Vec<_> = by.iter().map(|server| server.name.as_str()).collect();
            self.records.commit_pod(&id, Pod::new(&request, edits).changed_by(by.join(", ")));
        }
        Ok(answer)
    }

    /// Its containers are stopped with it, those that had ended by themselves included.
    pub(super) async fn stop_pod(
        &self,
        call: &mut InterceptedCall,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let id = id::of(&message)?;
        let (answer, end) = self.end_pod(call, Method::StopPodSandbox, &id, &message).await?;
        if let Some((id, outcome)) = end {
            let notified = self.notify_pod_stopped(call, &id, &outcome).await;
            if outcome.code == Code::Ok {
                notified?;
            }
        }
        Ok(answer)
    }

    pub(super) async fn remove_pod(
        &self,
        call: &mut InterceptedCall,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let id = id::of(&message)?;
        let (answer, end) = self.end_pod(call, Method::RemovePodSandbox, &id, &message).await?;
        if answer.code() != Code::Ok {
            return Ok(answer);
        }
        match end {
            Some((id, outcome)) => {
                // Nobody would call again for a pod that is gone, whatever a server says now.
                let _ = self.notify_pod_stopped(call, &id, &outcome).await;
                self.records.remove_pod(&id);
            }
            None => self.records.forget_pod(&id),
        }
        Ok(answer)
    }

    /// Looks for the pod, and then asks the runtime, which does not know a removed pod any more.
    async fn end_pod(
        &self,
        call: &mut InterceptedCall,
        method: Method,
        id: &str,
        message: &Bytes,
    ) -> Result<(RawAnswer, Option<(String, Outcome)>), End> {
        let Some(Found { id, .. }) = self.pod(call, method, id).await? else {
            return Ok((call.forward(&self.runtime, message, ()).await?, None));
        };
        let guard = self.guard(call, &id).await?;
        let (answer, outcome) = self.timed(call, message, guard).await?;
        Ok((answer, Some((id, outcome))))
    }

    /// Notifies servers of the ends of a pod's containers, if not done before, and then of the
    /// pod's end.
    async fn notify_pod_stopped(
        &self,
        call: &InterceptedCall,
        id: &str,
        outcome: &Outcome,
    ) -> Result<(), Status> {
        if outcome.code == Code::Ok {
            let containers = self.records.containers_of(id);
            let later = &[HookPoint::PostStopPodSandbox];
            let notified = containers.iter().map(|(container, _)| {
                // The pod's own hook keeps its share of the time.
                self.notify_stop(container, outcome, |pod, asked| CallContext {
                    later,
                    ..call.container_context(pod, asked)
                })
            });
            // One failure does not keep the others from being sent.
            join_all(notified).await.into_iter().collect::<Result<(), Status>>()?;
        }
        let _once = self.locks.lock(&format!("stop {id}")).await;
        let Some(pod) = self.records.pod(id).filter(|pod| !pod.is_stopped()) else { return Ok(()) };
        if !pod.is_skipped(self.skip.as_ref()) {
            let question = pod.question();
            let context = call.pod_context(&question, Some(id));
            let (point, known) = (HookPoint::PostStopPodSandbox, self.records.notified(id));
            let notified =
                self.chain.notify::<PodSandbox>(point, &context, question, outcome, &known).await;
            self.record_notified(id, outcome, notified)?;
        }
        if outcome.code == Code::Ok {
            self.records.stop_pod(id);
        }
        Ok(())
    }
}
