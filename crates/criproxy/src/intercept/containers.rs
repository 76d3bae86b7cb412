//! Containers: made, started, changed, stopped and removed.

use std::collections::BTreeSet;

use bytes::Bytes;
use tonic::{Code, Status};
use wharf_proto::hooks::ContainerResourceHookRequest;
use wharf_reconcile::KeyGuard;
use wharf_uds::RawAnswer;

use super::{
    Interceptor, Method,
    intercepted_call::{End, InterceptedCall},
    lookup::Known,
    made,
};
use crate::{
    HookPoint, audit,
    chain::{Asked, CallContext, Notified, Outcome},
    container::{self, Container, Creation},
    id,
    rebuild::Found,
    record,
};

impl Interceptor {
    pub(super) async fn create_container(
        &self,
        call: &mut InterceptedCall,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let (method, point) = (Method::CreateContainer, HookPoint::PreCreateContainer);
        let Some(Found { id: pod_id, record: pod }) =
            self.pod(call, method, &id::of(&message)?).await?
        else {
            let answer = call.forward(&self.runtime, &message, ()).await?;
            made(&answer).into_iter().for_each(|id| self.overlooked.note(id));
            return Ok(answer);
        };
        let skipped = pod.is_skipped(self.skip.as_ref());
        // Without a server that could have changed the pod, what its sandbox has beyond the request
        // is what kubelet took back.
        let guessing = !skipped && self.chain.wants(HookPoint::PreRunPodSandbox);
        let Creation { question, carried } = container::creation(&message, &pod, guessing)?;
        let mut context = call.container_context(&pod, &question).within(&pod_id);
        if !skipped && self.chain.tells_details(point) {
            context.details = container::details(&message)?.into();
        }
        let guard = self.guard(call, &pod_id).await?;
        let Asked { request, edits, .. } =
            self.ask::<Container>(call, point, &context, question, skipped).await?;
        if !carried.is_empty() {
            audit::carried(pod.who_changed_it(), &context, &carried);
            self.chain.history.carried(pod.who_changed_it(), &context, &carried);
        }
        let message = container::edited(message, &carried, &edits)?;
        let answer = call.forward(&self.runtime, &message, guard).await?;
        if let Some(id) = made(&answer) {
            self.records.commit_container(record::Container::new(&pod_id, &id, request));
        }
        Ok(answer)
    }

    /// What hook servers answer before a start goes into the record, and to the runtime with the
    /// next update.
    pub(super) async fn start_container(
        &self,
        call: &mut InterceptedCall,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let (before, after) = (HookPoint::PreStartContainer, HookPoint::PostStartContainer);
        let id = id::of(&message)?;
        let last = self.last_change(call, &id).await?;
        let known = self.container(call, Method::StartContainer, &id).await?;
        let Some(Known { id, container, pod }) = known else {
            return call.forward(&self.runtime, &message, ()).await;
        };
        let question = container.question();
        let context = call.container_context(&pod, &question).within(container.pod());
        let begun = CallContext { later: &[HookPoint::PostStartContainer], ..context.clone() };
        let guard = self.guard(call, container.pod()).await?;
        let skipped = pod.is_skipped(self.skip.as_ref());
        let Asked { request, answered, .. } =
            self.ask::<Container>(call, before, &begun, question, skipped).await?;
        let (answer, outcome) = self.timed(call, &message, guard).await?;
        if outcome.code == Code::Ok && answered {
            self.records.update_container(&id, |known| known.now(request.clone()));
        }
        drop(last);
        if !skipped {
            let nobody = BTreeSet::new();
            let notified =
                self.chain.notify::<Container>(after, &context, request, &outcome, &nobody).await;
            // The runtime's failure takes precedence over a failed notification.
            if outcome.code == Code::Ok {
                notified.all?;
            }
        }
        Ok(answer)
    }

    pub(super) async fn update_container(
        &self,
        call: &mut InterceptedCall,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let (method, point) =
            (Method::UpdateContainerResources, HookPoint::PreUpdateContainerResources);
        let id = id::of(&message)?;
        let _last = self.last_change(call, &id).await?;
        let Some(Known { id, container, pod }) = self.container(call, method, &id).await? else {
            let answer = call.forward(&self.runtime, &message, ()).await?;
            if answer.code() == Code::Ok {
                // What was read of it meanwhile, or is known under its whole id, may be from
                // before.
                self.records.forget_container(&id);
                self.overlooked.note(id);
            }
            return Ok(answer);
        };
        let question = container::update_asked(&message, &container)?;
        let context = call.container_context(&pod, &question).within(container.pod());
        let guard = self.guard(call, container.pod()).await?;
        let skipped = pod.is_skipped(self.skip.as_ref());
        let Asked { request, has_content, edits, .. } =
            self.ask::<Container>(call, point, &context, question, skipped).await?;
        let message = container::updated(message, &request, has_content, &edits)?;
        let answer = call.forward(&self.runtime, &message, guard).await?;
        if answer.code() == Code::Ok {
            self.records.update_container(&id, |known| known.now(request));
        }
        Ok(answer)
    }

    pub(super) async fn stop_container(
        &self,
        call: &mut InterceptedCall,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let id = id::of(&message)?;
        let (answer, end) = self.end_container(call, Method::StopContainer, &id, &message).await?;
        if let Some((id, outcome)) = end {
            let notified = self
                .notify_stop(&id, &outcome, |pod, asked| call.container_context(pod, asked))
                .await;
            if outcome.code == Code::Ok {
                notified?;
            }
        }
        Ok(answer)
    }

    /// A container that ended by itself was never stopped, so its end is reported now.
    pub(super) async fn remove_container(
        &self,
        call: &mut InterceptedCall,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let id = id::of(&message)?;
        let (answer, end) =
            self.end_container(call, Method::RemoveContainer, &id, &message).await?;
        if answer.code() != Code::Ok {
            return Ok(answer);
        }
        match end {
            Some((id, outcome)) => {
                // A removed container gets no further call, so failures of servers are ignored.
                let _ = self
                    .notify_stop(&id, &outcome, |pod, asked| call.container_context(pod, asked))
                    .await;
                self.records.remove_container(&id);
            }
            None => self.records.forget_container(&id),
        }
        Ok(answer)
    }

    /// Waits for the start or update before: the next one builds on what it has led to.
    async fn last_change(&self, call: &mut InterceptedCall, id: &str) -> Result<KeyGuard, End> {
        self.guard(call, &format!("change {id}")).await
    }

    /// Asks the runtime, having looked for the container: once it is gone the runtime cannot tell
    /// of it.
    async fn end_container(
        &self,
        call: &mut InterceptedCall,
        method: Method,
        id: &str,
        message: &Bytes,
    ) -> Result<(RawAnswer, Option<(String, Outcome)>), End> {
        let known = self.container(call, method, id).await?;
        let Some(Known { id, container, .. }) = known else {
            return Ok((call.forward(&self.runtime, message, ()).await?, None));
        };
        let guard = self.guard(call, container.pod()).await?;
        let (answer, outcome) = self.timed(call, message, guard).await?;
        Ok((answer, Some((id, outcome))))
    }

    /// Sends PostStopContainer for a container, unless that was done. `about` makes what goes with
    /// the question.
    pub(super) async fn notify_stop(
        &self,
        id: &str,
        outcome: &Outcome,
        context: impl FnOnce(&record::Pod, &ContainerResourceHookRequest) -> CallContext,
    ) -> Result<(), Status> {
        let _once = self.locks.lock(&format!("stop {id}")).await;
        let known = self.records.container(id).filter(|container| !container.is_stopped());
        let Some(container) = known else { return Ok(()) };
        let pod = self.records.pod(container.pod());
        if let Some(pod) = pod.filter(|pod| !pod.is_skipped(self.skip.as_ref())) {
            let question = container.question();
            let context = context(&pod, &question).within(container.pod());
            let (point, known) = (HookPoint::PostStopContainer, self.records.notified(id));
            let notified =
                self.chain.notify::<Container>(point, &context, question, outcome, &known).await;
            self.record_notified(id, outcome, notified)?;
        }
        if outcome.code == Code::Ok {
            self.records.stop_container(id);
        }
        Ok(())
    }

    /// Records which servers were notified, so that a retry skips them. A failed stop is not
    /// recorded.
    pub(super) fn record_notified(
        &self,
        id: &str,
        outcome: &Outcome,
        Notified { servers, all }: Notified,
    ) -> Result<(), Status> {
        if all.is_err() && outcome.code == Code::Ok {
            self.records.set_notified(id, servers);
        }
        all
    }
}
