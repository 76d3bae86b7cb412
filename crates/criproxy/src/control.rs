//! Questions of a person to a running proxy: `wharf proxy status` and `forget`.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use wharf_uds::{Listener, ServeError};

use crate::{
    config::{ConfigHandle, ConfigStatus},
    intercept::Interceptor,
};

/// How long questions in flight may take once the proxy is told to stop.
const DRAIN: Duration = Duration::from_secs(1);

/// A question to a running proxy: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlQuestion {
    /// The state of each hook server.
    Status,
    /// Stop waiting for the file of this server.
    Forget(String),
}

/// The answer of a running proxy: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAnswer {
    /// The state of each hook server.
    Status(ConfigStatus),
    /// The request was carried out: a sentence for a person.
    Done(String),
    /// The request was refused: the reason.
    Failed(String),
}

/// Answers questions about a proxy that runs.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) config: ConfigHandle,
    pub(crate) interceptor: Arc<Interceptor>,
}

impl Control {
    /// Problems that a person has to act on: refused files and missing required servers.
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
        let handler = move |line: String| {
            let control = self.clone();
            async move {
                let answer = control.answer(&line).await;
                serde_json::to_string(&answer).unwrap_or_else(|error| error.to_string())
            }
        };
        listener.serve_lines(handler, DRAIN, stop).await
    }

    async fn answer(&self, line: &str) -> ControlAnswer {
        match serde_json::from_str(line) {
            Ok(ControlQuestion::Status) => ControlAnswer::Status(self.status()),
            Ok(ControlQuestion::Forget(server)) => match self.config.forget(server).await {
                Ok(done) => ControlAnswer::Done(done),
                Err(reason) => ControlAnswer::Failed(reason),
            },
            Err(error) => ControlAnswer::Failed(format!("the question is not understood: {error}")),
        }
    }

    /// The state of each server; of one whose file is well, the last failure of the server itself.
    fn status(&self) -> ConfigStatus {
        let mut status = ConfigStatus::clone(&self.config.status());
        let mut failures = self.interceptor.chain.failures();
        for server in &mut status.servers {
            if server.error.is_none() {
                server.error = failures.remove(&server.file);
            }
        }
        status
    }
}
