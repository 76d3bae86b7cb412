//! `wharf hooks log`: a hook server that prints a line for every hook.

mod entry;
mod lines;

use std::{io, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use wharf_hooks::prelude::*;

use self::{
    entry::Entry,
    lines::{Lines, print},
};
use super::serving::Serving;
use crate::runtime::{self, Threads};

/// Time that a reader of standard output has for the last lines.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Prints a line for every hook, and changes nothing
///
/// Serves all seven hooks. A line has the time, the hook, pod and container, the requested
/// resources, the keys of annotations, the names of environment variables with the lengths of their
/// values, and the outcome of the runtime's call. To see the changes of other servers, set an
/// --order above theirs.
#[derive(Args)]
pub(crate) struct Log {
    /// Socket to serve hooks on; its folder is created if it is missing
    #[arg(long, value_name = "SOCKET")]
    socket: PathBuf,
    /// Name of the server, and of its file in --config-dir
    #[arg(long, value_name = "NAME", default_value = "wharf-log")]
    name: String,
    /// Form of a line: text, or a JSON object
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    #[command(flatten)]
    serving: Serving,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Log {
    pub(crate) fn run(self) -> ExitCode {
        let guard = self.serving.log.init();
        let code = runtime::run(Threads::One, |stop| self.serve(stop));
        drop(guard);
        code
    }

    async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let (lines, printed) = Lines::new();
        let hooks = Arc::new(Witness { output: self.output, lines });
        let (builder, registry) = self.serving.builder(&self.name);
        let server = builder
            .pre_run_pod_sandbox(hooks.clone())
            .post_stop_pod_sandbox(hooks.clone())
            .pre_create_container(hooks.clone())
            .pre_start_container(hooks.clone())
            .post_start_container(hooks.clone())
            .pre_update_container_resources(hooks.clone())
            .post_stop_container(hooks)
            .build()?;
        let mut printing = JoinSet::new();
        // A closed standard output, as after `head`, ends the server.
        let gone = stop.clone().drop_guard();
        printing.spawn_blocking(move || {
            let _gone = gone;
            print(printed)
        });
        self.serving.serve(server, self.socket.clone(), registry, stop).await?;
        // The server has dropped its hooks, so the printer ends unless standard output is not read.
        match timeout(LAST_LINES, printing.join_all()).await {
            Ok(printed) => printed.into_iter().collect::<io::Result<()>>()?,
            Err(_) => warn!("dropped the last lines: standard output is not read"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Hooks that print every call and change nothing.
struct Witness {
    output: Output,
    lines: Lines,
}

impl Witness {
    fn note(&self, entry: &Entry<'_>) {
        self.lines.push(match self.output {
            Output::Text => entry.to_string(),
            Output::Json => entry.json().to_string(),
        });
    }
}

#[async_trait]
impl PreRunPodSandbox for Witness {
    async fn pre_run_pod_sandbox(&self, sandbox: &PodSandbox) -> Result<PodAdjustment, Refusal> {
        self.note(&Entry::sandbox(HookPoint::PreRunPodSandbox, sandbox, None));
        Ok(PodAdjustment::new())
    }
}

#[async_trait]
impl PostStopPodSandbox for Witness {
    async fn post_stop_pod_sandbox(
        &self,
        sandbox: &PodSandbox,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal> {
        self.note(&Entry::sandbox(HookPoint::PostStopPodSandbox, sandbox, outcome));
        Ok(())
    }
}

#[async_trait]
impl PreCreateContainer for Witness {
    async fn pre_create_container(
        &self,
        container: &Container,
    ) -> Result<ContainerAdjustment, Refusal> {
        self.note(&Entry::container(HookPoint::PreCreateContainer, container, None));
        Ok(ContainerAdjustment::new())
    }
}

#[async_trait]
impl PreStartContainer for Witness {
    async fn pre_start_container(&self, container: &Container) -> Result<(), Refusal> {
        self.note(&Entry::container(HookPoint::PreStartContainer, container, None));
        Ok(())
    }
}

#[async_trait]
impl PostStartContainer for Witness {
    async fn post_start_container(
        &self,
        container: &Container,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal> {
        self.note(&Entry::container(HookPoint::PostStartContainer, container, outcome));
        Ok(())
    }
}

#[async_trait]
impl PreUpdateContainerResources for Witness {
    async fn pre_update_container_resources(
        &self,
        container: &Container,
    ) -> Result<ResourceAdjustment, Refusal> {
        self.note(&Entry::container(HookPoint::PreUpdateContainerResources, container, None));
        Ok(ResourceAdjustment::new())
    }
}

#[async_trait]
impl PostStopContainer for Witness {
    async fn post_stop_container(
        &self,
        container: &Container,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal> {
        self.note(&Entry::container(HookPoint::PostStopContainer, container, outcome));
        Ok(())
    }
}
