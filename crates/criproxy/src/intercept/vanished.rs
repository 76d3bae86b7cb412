//! What ended while nobody watched: the runtime was away, and no longer has it.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tonic::Code;

use super::Interceptor;
use crate::{
    HookPoint,
    chain::{CallContext, Outcome},
    container::Container,
    pod::PodSandbox,
    record::Vanished,
};

/// Ends that servers are notified of concurrently.
const CONCURRENCY: usize = 16;

impl Interceptor {
    /// Tells hook servers of what ended unseen. Nobody would call again, so failures are theirs.
    pub(crate) async fn tell_vanished(&self) {
        let (containers, pods): (Vec<_>, Vec<_>) =
            self.records.take_vanished().into_iter().partition(|own| own.container.is_some());
        for kind in [containers, pods] {
            let ends = kind.into_iter().map(|vanished| self.tell_end(vanished));
            stream::iter(ends).buffer_unordered(CONCURRENCY).collect::<()>().await;
        }
    }

    async fn tell_end(&self, vanished: Vanished) {
        let Vanished { id, pod, container, notified } = vanished;
        if pod.is_skipped(self.skip.as_ref()) {
            return;
        }
        let outcome = Outcome {
            code: Code::Ok,
            message: "the runtime no longer has it".to_owned(),
            duration: Duration::ZERO,
        };
        let context = CallContext {
            pod: pod.name().to_owned(),
            id: Some((*id).to_owned()),
            ..CallContext::default()
        };
        // Its failures are logged and counted.
        let _ = match container {
            Some(container) => {
                let question = container.question();
                let name = question.container_meta.as_ref().map(|own| own.name.clone());
                let context = CallContext {
                    container: name,
                    encoded_pod: pod.encoded_pod().clone(),
                    ..context
                };
                let point = HookPoint::PostStopContainer;
                self.chain.notify::<Container>(point, &context, question, &outcome, &notified).await
            }
            None => {
                let point = HookPoint::PostStopPodSandbox;
                self.chain
                    .notify::<PodSandbox>(point, &context, pod.question(), &outcome, &notified)
                    .await
            }
        };
    }
}
