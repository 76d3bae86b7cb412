//! Pod sandboxes: made, stopped and removed.

use bytes::Bytes;
use futures_util::future::join_all;
use tonic::{Code, Status};
use wharf_uds::RawAnswer;

use super::visit::{End, Visit};
use super::{Interceptor, Method, made};
use crate::HookPoint;
use crate::chain::{About, Asked, Outcome};
use crate::id;
use crate::pod::{self, PodSandbox};
use crate::rebuild::Found;
use crate::record::Pod;

impl Interceptor {
    pub(super) async fn run_pod(
        &self,
        visit: &mut Visit,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let question = pod::asked(&message)?;
        let about = visit.about_pod(&question, None);
        let turn = self.turn(visit, &about.pod).await?;
        let skipped = self.skip.as_ref().is_some_and(|skip| skip.applies(&question));
        let point = HookPoint::PreRunPodSandbox;
        let Asked { request, edits, by, .. } =
            self.ask::<PodSandbox>(visit, point, &about, question, skipped).await?;
        let message = pod::edited(message, &edits)?;
        let answer = visit.forward(&self.runtime, &message, turn).await?;
        if let Some(id) = made(&answer) {
            let by: Vec<_> = by.iter().map(|server| server.name.as_str()).collect();
            self.records.commit_pod(&id, Pod::new(&request, edits).changed_by(by.join(", ")));
        }
        Ok(answer)
    }

    /// Its containers are stopped with it, those that had ended by themselves included.
    pub(super) async fn stop_pod(
        &self,
        visit: &mut Visit,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let id = id::of(&message)?;
        let (answer, end) = self.end_pod(visit, Method::StopPodSandbox, &id, &message).await?;
        if let Some((id, outcome)) = end {
            let told = self.tell_pod_stopped(visit, &id, &outcome).await;
            if outcome.code == Code::Ok {
                told?;
            }
        }
        Ok(answer)
    }

    pub(super) async fn remove_pod(
        &self,
        visit: &mut Visit,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let id = id::of(&message)?;
        let (answer, end) = self.end_pod(visit, Method::RemovePodSandbox, &id, &message).await?;
        if answer.code() != Code::Ok {
            return Ok(answer);
        }
        match end {
            Some((id, outcome)) => {
                // Nobody would call again for a pod that is gone, whatever a server says now.
                let _ = self.tell_pod_stopped(visit, &id, &outcome).await;
                self.records.remove_pod(&id);
            }
            None => self.records.forget_pod(&id),
        }
        Ok(answer)
    }

    /// Asks the runtime, having looked for the pod: once it is gone the runtime cannot tell of it.
    async fn end_pod(
        &self,
        visit: &mut Visit,
        method: Method,
        id: &str,
        message: &Bytes,
    ) -> Result<(RawAnswer, Option<(String, Outcome)>), End> {
        let Some(Found { id, .. }) = self.pod(visit, method, id).await? else {
            return Ok((visit.forward(&self.runtime, message, ()).await?, None));
        };
        let turn = self.turn(visit, &id).await?;
        let (answer, outcome) = self.timed(visit, message, turn).await?;
        Ok((answer, Some((id, outcome))))
    }

    /// Tells of a pod's end, and before that of those of its containers that was not told of.
    async fn tell_pod_stopped(
        &self,
        visit: &Visit,
        id: &str,
        outcome: &Outcome,
    ) -> Result<(), Status> {
        if outcome.code == Code::Ok {
            let containers = self.records.containers_of(id);
            let later = &[HookPoint::PostStopPodSandbox];
            let told = containers.iter().map(|(container, _)| {
                // The pod's own hook keeps its share of the time.
                self.notify_stop(container, outcome, |pod, asked| About {
                    later,
                    ..visit.about_container(pod, asked)
                })
            });
            // One that fails is no reason to leave the others untold.
            join_all(told).await.into_iter().collect::<Result<(), Status>>()?;
        }
        let _once = self.turns.lock(&format!("stop {id}")).await;
        let Some(pod) = self.records.pod(id).filter(|pod| !pod.is_stopped()) else { return Ok(()) };
        if !pod.is_skipped(self.skip.as_ref()) {
            let question = pod.question();
            let about = visit.about_pod(&question, Some(id));
            let (point, known) = (HookPoint::PostStopPodSandbox, self.records.told(id));
            let told =
                self.chain.tell::<PodSandbox>(point, &about, question, outcome, &known).await;
            self.remember_told(id, outcome, told)?;
        }
        if outcome.code == Code::Ok {
            self.records.stop_pod(id);
        }
        Ok(())
    }
}
