//! `wharf hooks log`: who is run, seen at every hook.

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
use crate::running::{self, Threads};

/// How long a reader has for the lines that are left at the end.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Prints a line for every hook, and changes nothing
///
/// Offers all seven hooks. A line has the time, the hook, pod and container, the resources that are asked for, the keys of
/// annotations, the names of environment variables with the lengths of their values, and how the runtime's call went. To see
/// what other servers make of a container, give it an --order above theirs.
#[derive(Args)]
pub(crate) struct Log {
    /// Socket to serve hooks on; its folder is made if it is not there
    #[arg(long, value_name = "SOCKET")]
    socket: PathBuf,
    /// Name of the server, and of its file in --config-dir
    #[arg(long, value_name = "NAME", default_value = "wharf-log")]
    name: String,
    /// A line of text, or an object of JSON
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
        let code = running::run(Threads::One, |stop| self.serve(stop));
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
        // A reader that is gone, such as `head`, ends the server.
        let gone = stop.clone().drop_guard();
        printing.spawn_blocking(move || {
            let _gone = gone;
            print(printed)
        });
        self.serving.serve(server, self.socket.clone(), registry, stop).await?;
        // Its hooks are gone with it, and so the printer has an end, unless nobody reads what it prints.
        match timeout(LAST_LINES, printing.join_all()).await {
            Ok(printed) => printed.into_iter().collect::<io::Result<()>>()?,
            Err(_) => warn!("standard output is not read: the last lines are lost"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Sees everything and touches nothing.
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
