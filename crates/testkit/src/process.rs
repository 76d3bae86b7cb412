//! Child processes that a test owns: none outlives it, and each leaves a log that failures quote.

mod exit;
mod spawner;

use std::fs::File;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use self::exit::Exit;

const TAIL_LINES: usize = 30;

/// A running program and the processes of its group.
///
/// It may be awaited from any runtime, so tests with a runtime each can share it. Dropping it kills the group; so
/// does the end of the test process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    group: Pid,
    exit: Exit,
    status: Option<ExitStatus>,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with both outputs appended to `<folder>/<name>.log` and no input.
    ///
    /// Program, arguments, environment and working folder of `command` are taken; its other settings are not.
    pub fn start(name: &str, command: &Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("log file {}", log.display()))?;
        let child = spawner::spawn(command, output).with_context(|| {
            format!(
                "start {name}: {} (setpriv, of util-linux, has to be there)",
                command.get_program().display()
            )
        })?;
        let group = Pid::from_child(&child);
        let exit = Exit::watch(group).with_context(|| format!("watch {name}"))?;
        Ok(Self { name: name.to_owned(), child, group, exit, status: None, log })
    }

    /// The process ID.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The file that holds what the program printed.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines that the program printed.
    #[must_use]
    pub fn tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// Sends `signal` to the process group.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if self.status.is_none() {
            kill_process_group(self.group, signal)
                .with_context(|| format!("signal {}", self.name))?;
        }
        Ok(())
    }

    /// Waits for the program to end by itself.
    pub async fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        match timeout(deadline, self.exited()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("{} still runs after {deadline:?}:\n{}", self.name, self.tail()),
        }
    }

    /// Asks the program to end (SIGTERM) and waits; what still runs at the deadline is killed and is an error.
    pub async fn stop(mut self, deadline: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(deadline).await
    }

    /// Waits until `probe` gives something; the program's own end is an error at once.
    pub async fn ready<T, P, F>(&mut self, deadline: Duration, what: &str, probe: P) -> Result<T>
    where
        P: FnMut() -> F,
        F: Future<Output = Option<T>>,
    {
        let ready = tokio::select! {
            status = self.exited() => Err(anyhow::anyhow!("ended with {}", status?)),
            ready = wait_for(deadline, what, probe) => ready,
        };
        ready.with_context(|| format!("{}:\n{}", self.name, self.tail()))
    }

    /// Waits for a line of output that `wanted` accepts, and gives what it made of it.
    pub async fn line<T>(
        &mut self,
        deadline: Duration,
        what: &str,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> Result<T> {
        let log = self.log.clone();
        self.ready(deadline, what, || {
            let text = std::fs::read(&log).unwrap_or_default();
            let found = String::from_utf8_lossy(&text).lines().find_map(&mut wanted);
            std::future::ready(found)
        })
        .await
    }

    async fn exited(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.status {
            return Ok(status);
        }
        self.exit.seen().await;
        self.reap()
    }

    /// Kills what is left of the group and collects the leader. In this order: until it is collected the leader
    /// holds its ID, so the signal reaches no stranger.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        let _ = kill_process_group(self.group, Signal::KILL);
        let status = self.child.wait()?;
        self.exit.join();
        self.status = Some(status);
        Ok(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status.is_none() {
            let _ = self.reap();
        }
    }
}

/// Runs a short command to its end and gives its standard output; failure quotes what it said.
pub async fn run(command: &Command, deadline: Duration) -> Result<String> {
    let output = output(command, deadline).await?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a short command to its end, however it ends.
pub async fn output(command: &Command, deadline: Duration) -> Result<std::process::Output> {
    let mut process = tokio::process::Command::new(command.get_program());
    process.args(command.get_args()).stdin(Stdio::null()).kill_on_drop(true);
    match timeout(deadline, process.output()).await {
        Ok(output) => output.with_context(|| format!("{command:?}")),
        Err(_) => bail!("{command:?}: no end within {deadline:?}"),
    }
}

/// Asks `probe` until it gives something.
///
/// For the state of programs that tell no one when they are ready; what sends an event is awaited instead.
pub async fn wait_for<T, P, F>(deadline: Duration, what: &str, mut probe: P) -> Result<T>
where
    P: FnMut() -> F,
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + deadline;
    let mut tick = interval(Duration::from_millis(50));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match tokio::time::timeout_at(end, probe()).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) if Instant::now() < end => {}
            _ => bail!("waited {deadline:?} for {what}"),
        }
    }
}
