//! Containers that the runtime reports as ended.

use std::time::Duration;

use tokio::time::timeout;
use tonic::Code;

use super::Interceptor;
use crate::{
    chain::{CallContext, Outcome},
    handover::{Admission, Scope},
};

/// How long the calls may take that are about a container which has ended.
const CALLS: Duration = Duration::from_secs(30);

impl Interceptor {
    /// Sends PostStopContainer for a container that has ended, unless that was done. A server that
    /// fails is asked again when the container is removed or its pod is stopped.
    pub(crate) async fn notify_exit(&self, id: &str) {
        let known = self.records.container(id).filter(|container| !container.is_stopped());
        let Some(container) = known else { return };
        let scope = Scope::Container { id: id.to_owned(), pod: Some(container.pod().to_owned()) };
        // A call that stops the container reports its own outcome, and the hooks of one that starts
        // it come first.
        let finished = timeout(CALLS, self.calls.finished(&scope)).await;
        if finished.is_err() {
            tracing::debug!(container = id, "calls about an ended container take too long");
        }
        // A successor finds out by itself.
        let Admission::Here(running) = self.calls.begin(Some(scope.clone())).await else { return };
        self.predecessor.clear(Some(&scope)).await;
        let outcome = Outcome {
            code: Code::Ok,
            message: "the runtime reported that the container has ended".to_owned(),
            duration: Duration::ZERO,
        };
        // Failures are logged and counted.
        let _ = self
            .notify_stop(id, &outcome, |pod, asked| CallContext {
                pod: pod.name().to_owned(),
                id: Some(id.to_owned()),
                container: asked.container_meta.as_ref().map(|own| own.name.clone()),
                encoded_pod: pod.encoded_pod().clone(),
                ..CallContext::default()
            })
            .await;
        running.end().await;
    }
}
