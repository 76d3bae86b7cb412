//! What ended while nobody watched: the runtime was away, and no longer has it.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tonic::Code;

use super::Interceptor;
use crate::HookPoint;
use crate::chain::{About, Outcome};
use crate::container::Container;
use crate::pod::PodSandbox;
use crate::record::Vanished;

/// How many ends are told of at a time.
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
        let Vanished { id, pod, container, told } = vanished;
        if pod.is_skipped(self.skip.as_ref()) {
            return;
        }
        let outcome = Outcome {
            code: Code::Ok,
            message: "the runtime no longer has it".to_owned(),
            duration: Duration::ZERO,
        };
        let about =
            About { pod: pod.name().to_owned(), id: Some((*id).to_owned()), ..About::default() };
        // Its failures are logged and counted.
        let _ = match container {
            Some(container) => {
                let question = container.question();
                let name = question.container_meta.as_ref().map(|own| own.name.clone());
                let about = About { container: name, half: pod.half().clone(), ..about };
                let point = HookPoint::PostStopContainer;
                self.chain.tell::<Container>(point, &about, question, &outcome, &told).await
            }
            None => {
                let point = HookPoint::PostStopPodSandbox;
                self.chain.tell::<PodSandbox>(point, &about, pod.question(), &outcome, &told).await
            }
        };
    }
}
