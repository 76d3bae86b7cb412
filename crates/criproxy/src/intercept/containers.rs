//! Containers: made, started, changed, stopped and removed.

use std::collections::BTreeSet;

use bytes::Bytes;
use tonic::{Code, Status};
use wharf_proto::hooks::ContainerResourceHookRequest;
use wharf_reconcile::KeyGuard;
use wharf_uds::RawAnswer;

use super::lookup::Known;
use super::visit::{End, Visit};
use super::{Interceptor, Method, made};
use crate::chain::{About, Asked, Outcome, Told};
use crate::container::{self, Container, Creation};
use crate::rebuild::Found;
use crate::{HookPoint, audit, id, record};

impl Interceptor {
    pub(super) async fn create_container(
        &self,
        visit: &mut Visit,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let (method, point) = (Method::CreateContainer, HookPoint::PreCreateContainer);
        let Some(Found { id: pod_id, record: pod }) =
            self.pod(visit, method, &id::of(&message)?).await?
        else {
            let answer = visit.forward(&self.runtime, &message, ()).await?;
            made(&answer).into_iter().for_each(|id| self.overlooked.note(id));
            return Ok(answer);
        };
        let skipped = pod.is_skipped(self.skip.as_ref());
        // Without a server that could have changed the pod, what its sandbox has beyond the request is what kubelet took back.
        let guessing = !skipped && self.chain.wants(HookPoint::PreRunPodSandbox);
        let Creation { question, carried } = container::creation(&message, &pod, guessing)?;
        let mut about = visit.about_container(&pod, &question).within(&pod_id);
        if !skipped && self.chain.tells_details(point) {
            about.details = container::details(&message)?.into();
        }
        let turn = self.turn(visit, &pod_id).await?;
        let Asked { request, edits, .. } =
            self.ask::<Container>(visit, point, &about, question, skipped).await?;
        if !carried.is_empty() {
            audit::carried(pod.who_changed_it(), &about, &carried);
            self.chain.history.carried(pod.who_changed_it(), &about, &carried);
        }
        let message = container::edited(message, &carried, &edits)?;
        let answer = visit.forward(&self.runtime, &message, turn).await?;
        if let Some(id) = made(&answer) {
            self.records.commit_container(record::Container::new(&pod_id, &id, request));
        }
        Ok(answer)
    }

    /// What hook servers answer before a start goes into the record, and to the runtime with the next update.
    pub(super) async fn start_container(
        &self,
        visit: &mut Visit,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let (before, after) = (HookPoint::PreStartContainer, HookPoint::PostStartContainer);
        let id = id::of(&message)?;
        let last = self.last_change(visit, &id).await?;
        let known = self.container(visit, Method::StartContainer, &id).await?;
        let Some(Known { id, container, pod }) = known else {
            return visit.forward(&self.runtime, &message, ()).await;
        };
        let question = container.question();
        let about = visit.about_container(&pod, &question).within(container.pod());
        let begun = About { later: &[HookPoint::PostStartContainer], ..about.clone() };
        let turn = self.turn(visit, container.pod()).await?;
        let skipped = pod.is_skipped(self.skip.as_ref());
        let Asked { request, answered, .. } =
            self.ask::<Container>(visit, before, &begun, question, skipped).await?;
        let (answer, outcome) = self.timed(visit, &message, turn).await?;
        if outcome.code == Code::Ok && answered {
            self.records.update_container(&id, |known| known.now(request.clone()));
        }
        drop(last);
        if !skipped {
            let nobody = BTreeSet::new();
            let told =
                self.chain.tell::<Container>(after, &about, request, &outcome, &nobody).await;
            // That the runtime failed comes before that somebody could not be told of it.
            if outcome.code == Code::Ok {
                told.all?;
            }
        }
        Ok(answer)
    }

    pub(super) async fn update_container(
        &self,
        visit: &mut Visit,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let (method, point) =
            (Method::UpdateContainerResources, HookPoint::PreUpdateContainerResources);
        let id = id::of(&message)?;
        let _last = self.last_change(visit, &id).await?;
        let Some(Known { id, container, pod }) = self.container(visit, method, &id).await? else {
            let answer = visit.forward(&self.runtime, &message, ()).await?;
            if answer.code() == Code::Ok {
                // What was read of it meanwhile, or is known under its whole id, may be from before.
                self.records.forget_container(&id);
                self.overlooked.note(id);
            }
            return Ok(answer);
        };
        let question = container::update_asked(&message, &container)?;
        let about = visit.about_container(&pod, &question).within(container.pod());
        let turn = self.turn(visit, container.pod()).await?;
        let skipped = pod.is_skipped(self.skip.as_ref());
        let Asked { request, said, edits, .. } =
            self.ask::<Container>(visit, point, &about, question, skipped).await?;
        let message = container::updated(message, &request, said, &edits)?;
        let answer = visit.forward(&self.runtime, &message, turn).await?;
        if answer.code() == Code::Ok {
            self.records.update_container(&id, |known| known.now(request));
        }
        Ok(answer)
    }

    pub(super) async fn stop_container(
        &self,
        visit: &mut Visit,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let id = id::of(&message)?;
        let (answer, end) = self.end_container(visit, Method::StopContainer, &id, &message).await?;
        if let Some((id, outcome)) = end {
            let told = self
                .notify_stop(&id, &outcome, |pod, asked| visit.about_container(pod, asked))
                .await;
            if outcome.code == Code::Ok {
                told?;
            }
        }
        Ok(answer)
    }

    /// One that ended by itself was never stopped; that it did is told of now.
    pub(super) async fn remove_container(
        &self,
        visit: &mut Visit,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let id = id::of(&message)?;
        let (answer, end) =
            self.end_container(visit, Method::RemoveContainer, &id, &message).await?;
        if answer.code() != Code::Ok {
            return Ok(answer);
        }
        match end {
            Some((id, outcome)) => {
                // Nobody would call again for a container that is gone, whatever a server says now.
                let _ = self
                    .notify_stop(&id, &outcome, |pod, asked| visit.about_container(pod, asked))
                    .await;
                self.records.remove_container(&id);
            }
            None => self.records.forget_container(&id),
        }
        Ok(answer)
    }

    /// Waits for the start or update before: the next one builds on what it has led to.
    async fn last_change(&self, visit: &mut Visit, id: &str) -> Result<KeyGuard, End> {
        self.turn(visit, &format!("change {id}")).await
    }

    /// Asks the runtime, having looked for the container: once it is gone the runtime cannot tell of it.
    async fn end_container(
        &self,
        visit: &mut Visit,
        method: Method,
        id: &str,
        message: &Bytes,
    ) -> Result<(RawAnswer, Option<(String, Outcome)>), End> {
        let known = self.container(visit, method, id).await?;
        let Some(Known { id, container, .. }) = known else {
            return Ok((visit.forward(&self.runtime, message, ()).await?, None));
        };
        let turn = self.turn(visit, container.pod()).await?;
        let (answer, outcome) = self.timed(visit, message, turn).await?;
        Ok((answer, Some((id, outcome))))
    }

    /// Sends PostStopContainer for a container, unless that was done. `about` makes what goes with the question.
    pub(super) async fn notify_stop(
        &self,
        id: &str,
        outcome: &Outcome,
        about: impl FnOnce(&record::Pod, &ContainerResourceHookRequest) -> About,
    ) -> Result<(), Status> {
        let _once = self.turns.lock(&format!("stop {id}")).await;
        let known = self.records.container(id).filter(|container| !container.is_stopped());
        let Some(container) = known else { return Ok(()) };
        let pod = self.records.pod(container.pod());
        if let Some(pod) = pod.filter(|pod| !pod.is_skipped(self.skip.as_ref())) {
            let question = container.question();
            let about = about(&pod, &question).within(container.pod());
            let (point, known) = (HookPoint::PostStopContainer, self.records.told(id));
            let told = self.chain.tell::<Container>(point, &about, question, outcome, &known).await;
            self.remember_told(id, outcome, told)?;
        }
        if outcome.code == Code::Ok {
            self.records.stop_container(id);
        }
        Ok(())
    }

    /// Of an end that not all know, those who do are not told again. That a stop failed is no end.
    pub(super) fn remember_told(
        &self,
        id: &str,
        outcome: &Outcome,
        Told { servers, all }: Told,
    ) -> Result<(), Status> {
        if all.is_err() && outcome.code == Code::Ok {
            self.records.tell(id, servers);
        }
        all
    }
}
