//! Containers: made, started, changed, stopped and removed.

use bytes::Bytes;
use tonic::{Code, Status};
use wharf_uds::RawAnswer;

use super::lookup::Known;
use super::turns::Turn;
use super::visit::{End, Visit};
use super::{Interceptor, Method, made};
use crate::HookPoint;
use crate::chain::{Asked, Outcome};
use crate::container::{self, Container, Creation};
use crate::id;
use crate::rebuild::Found;
use crate::record;

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
            return visit.forward(&self.runtime, &message, None).await;
        };
        let Creation { question, carried } = container::creation(&message, &pod)?;
        let about = visit.about_container(&pod, &question);
        let turn = self.turn(visit, &pod_id).await?;
        let skipped = pod.is_skipped(&self.skip);
        let Asked { request, edits, .. } =
            self.ask::<Container>(visit, point, &about, question, skipped).await?;
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
            return visit.forward(&self.runtime, &message, None).await;
        };
        let question = container.question();
        let about = visit.about_container(&pod, &question);
        let turn = self.turn(visit, container.pod()).await?;
        let skipped = pod.is_skipped(&self.skip);
        let Asked { request, answered, .. } =
            self.ask::<Container>(visit, before, &about, question, skipped).await?;
        let (answer, outcome) = self.timed(visit, &message, turn).await?;
        if outcome.code == Code::Ok && answered {
            self.records.update_container(&id, |known| known.now(request.clone()));
        }
        drop(last);
        if !skipped {
            let told = self.chain.tell::<Container>(after, &about, request, &outcome).await;
            // That the runtime failed comes before that somebody could not be told of it.
            if outcome.code == Code::Ok {
                told?;
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
            return visit.forward(&self.runtime, &message, None).await;
        };
        let question = container::update_asked(&message, &container)?;
        let about = visit.about_container(&pod, &question);
        let turn = self.turn(visit, container.pod()).await?;
        let skipped = pod.is_skipped(&self.skip);
        let Asked { request, answered, .. } =
            self.ask::<Container>(visit, point, &about, question, skipped).await?;
        let message = container::updated(message, &request, answered)?;
        let answer = visit.forward(&self.runtime, &message, turn).await?;
        if answer.status().code() == Code::Ok {
            self.records.update_container(&id, |known| known.now(request));
        }
        Ok(answer)
    }

    pub(super) async fn stop_container(
        &self,
        visit: &mut Visit,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let (answer, end) = self.end_container(visit, Method::StopContainer, &message).await?;
        if let Some((id, outcome)) = end {
            let told = self.tell_container_stopped(visit, &id, &outcome).await;
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
        let (answer, end) = self.end_container(visit, Method::RemoveContainer, &message).await?;
        if let Some((id, outcome)) = end.filter(|(_, outcome)| outcome.code == Code::Ok) {
            // Nobody would call again for a container that is gone, whatever a server says now.
            let _ = self.tell_container_stopped(visit, &id, &outcome).await;
            self.records.remove_container(&id);
        }
        Ok(answer)
    }

    /// Waits for the start or update before: the next one builds on what it has led to.
    async fn last_change(&self, visit: &mut Visit, id: &str) -> Result<Turn, End> {
        self.turn(visit, &format!("change {id}")).await
    }

    /// Asks the runtime, having looked for the container: once it is gone the runtime cannot tell of it.
    async fn end_container(
        &self,
        visit: &mut Visit,
        method: Method,
        message: &Bytes,
    ) -> Result<(RawAnswer, Option<(String, Outcome)>), End> {
        let known = self.container(visit, method, &id::of(message)?).await?;
        let Some(Known { id, container, .. }) = known else {
            return Ok((visit.forward(&self.runtime, message, None).await?, None));
        };
        let turn = self.turn(visit, container.pod()).await?;
        let (answer, outcome) = self.timed(visit, message, turn).await?;
        Ok((answer, Some((id, outcome))))
    }

    /// Tells of a container's end, unless that was done.
    pub(super) async fn tell_container_stopped(
        &self,
        visit: &Visit,
        id: &str,
        outcome: &Outcome,
    ) -> Result<(), Status> {
        let _once = self.turns.take(&format!("stop {id}")).await;
        let known = self.records.container(id).filter(|container| !container.is_stopped());
        let Some(container) = known else { return Ok(()) };
        let pod = self.records.pod(container.pod());
        if let Some(pod) = pod.filter(|pod| !pod.is_skipped(&self.skip)) {
            let question = container.question();
            let about = visit.about_container(&pod, &question);
            let point = HookPoint::PostStopContainer;
            self.chain.tell::<Container>(point, &about, question, outcome).await?;
        }
        if outcome.code == Code::Ok {
            self.records.update_container(id, record::Container::stopped);
        }
        Ok(())
    }
}
