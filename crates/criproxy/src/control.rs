//! Control questions to a running proxy: `wharf proxy status`, `explain`, `tap`, `forget`,
//! `upgrade` and `--take-over`.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::sync::{
    mpsc::{self, error::SendError},
    oneshot,
};
use tokio_util::sync::CancellationToken;
use wharf_uds::{LineCall, Listener, ServeError};

use crate::{
    config::{ConfigHandle, ConfigStatus},
    explain::Explanation,
    intercept::Interceptor,
    tap::{Ending, TapFilter},
};

/// The answer of a proxy that has a successor, or is stopping.
const REPLACED: &str = "this proxy is being replaced or stopped: ask again";

/// The time for questions in flight once the proxy is stopped.
const DRAIN: Duration = Duration::from_secs(1);

/// A question to a running proxy: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlQuestion {
    /// The state of each hook server.
    Status,
    /// The records of hook calls about a pod or container, by a name or an id.
    Explain(String),
    /// Matching calls, live. Lines of the tap follow the answer on this connection.
    Tap(TapFilter),
    /// Stop requiring the file of this server.
    Forget(String),
    /// Start a successor, and hand over to it.
    Upgrade,
    /// Hand over to the asking process. The sockets, and then lines of the hand-over, follow on
    /// this connection.
    TakeOver,
}

/// A request for a successor.
#[derive(Debug)]
pub enum SuccessionRequest {
    /// Start it, and send the result.
    Upgrade(oneshot::Sender<Result<String, String>>),
    /// The process at the other end of this connection.
    TakeOver(LineCall),
}

/// The answer of a running proxy: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAnswer {
    /// The state of each hook server.
    Status(ConfigStatus),
    /// The records of hook calls.
    Explanation(Explanation),
    /// Calls follow.
    Tapping,
    /// The request was carried out: a sentence for a person.
    Done(String),
    /// The request was refused: the reason.
    Failed(String),
}

/// Answers questions about a running proxy.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) config: ConfigHandle,
    pub(crate) interceptor: Arc<Interceptor>,
    pub(crate) succession: mpsc::Sender<SuccessionRequest>,
}

impl Control {
    /// Problems that need the operator: refused files and missing required servers.
    pub fn problems(&self) -> Vec<String> {
        self.config.status().problems()
    }

    /// Answers the questions of a listener until `stop`.
    ///
    /// # Errors
    /// When the listener is broken.
    pub async fn serve(
        self,
        listener: Listener,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let stopping = stop.clone();
        let handler = move |call: LineCall| {
            let (control, stop) = (self.clone(), stopping.clone());
            async move { control.serve_call(call, stop).await }
        };
        listener.serve_lines(handler, DRAIN, stop).await
    }

    async fn serve_call(&self, call: LineCall, stop: CancellationToken) {
        let question = serde_json::from_str(call.question());
        let answer = match question {
            Ok(ControlQuestion::Status) => ControlAnswer::Status(self.status()),
            Ok(ControlQuestion::Explain(name)) => {
                let explained = self.interceptor.chain.history.explain(&name).await;
                explained.map_or_else(ControlAnswer::Failed, ControlAnswer::Explanation)
            }
            Ok(ControlQuestion::Tap(filter)) => match self.interceptor.taps.join(filter) {
                Ok(calls) => {
                    let accepted = line(&ControlAnswer::Tapping);
                    let ending = Ending { calls: self.interceptor.calls.clone(), stop };
                    calls.serve(call.into_stream(), accepted, ending).await;
                    self.interceptor.busy_poll.extend();
                    return;
                }
                Err(reason) => ControlAnswer::Failed(reason),
            },
            Ok(ControlQuestion::Forget(server)) => done(self.config.forget(server).await),
            Ok(ControlQuestion::Upgrade) => done(self.upgrade().await),
            Ok(ControlQuestion::TakeOver) => {
                let request = SuccessionRequest::TakeOver(call);
                if let Err(SendError(SuccessionRequest::TakeOver(call))) =
                    self.succession.send(request).await
                {
                    call.answer(line(&ControlAnswer::Failed(REPLACED.to_owned()))).await;
                }
                return;
            }
            Err(error) => ControlAnswer::Failed(format!("the question is not understood: {error}")),
        };
        call.answer(line(&answer)).await;
        drop(answer);
        // A long answer leaves free memory, which is returned to the kernel at rest.
        self.interceptor.busy_poll.extend();
    }

    async fn upgrade(&self) -> Result<String, String> {
        let (sender, upgraded) = oneshot::channel();
        let request = SuccessionRequest::Upgrade(sender);
        self.succession.send(request).await.map_err(|_| REPLACED.to_owned())?;
        upgraded.await.unwrap_or_else(|_| Err(REPLACED.to_owned()))
    }

    /// The state of each server. If its file is valid, with the last failure of the server itself.
    fn status(&self) -> ConfigStatus {
        let mut status = ConfigStatus::clone(&self.config.status());
        status.container_events = *self.interceptor.events.borrow();
        let mut failures = self.interceptor.chain.failures();
        for server in &mut status.servers {
            if server.error.is_none() {
                server.error = failures.remove(&server.file);
            }
        }
        status
    }
}

fn done(outcome: Result<String, String>) -> ControlAnswer {
    outcome.map_or_else(ControlAnswer::Failed, ControlAnswer::Done)
}

fn line(answer: &ControlAnswer) -> String {
    serde_json::to_string(answer).unwrap_or_else(|error| error.to_string())
}
