//! Child processes that a test owns: each ends with the test, and writes a log that failures quote.

mod exit;
mod spawner;

use std::{
    fs::File,
    future::Future,
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use self::exit::Exit;

const TAIL_LINES: usize = 30;

/// A running program and its process group.
///
/// It may be awaited in any runtime, so tests with a runtime each can share it. Dropping it kills
/// the group; so does the end of the test process.
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
    /// Starts `command` without input; both outputs are appended to `<folder>/<name>.log`.
    ///
    /// Uses the program, arguments, environment and working folder of `command`, and ignores its
    /// other settings.
    pub fn start(name: &str, command: &Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log);
        let output = output.with_context(|| format!("log file {}", log.display()))?;
        let child = spawner::spawn(command, output).with_context(|| {
            format!(
                "start {name}: {} (setpriv, of util-linux, must be installed)",
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

    /// The file with the program's output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of the program's output.
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

    /// Waits for the program to end.
    pub async fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        match timeout(deadline, self.exited()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("{} still runs after {deadline:?}:\n{}", self.name, self.tail()),
        }
    }

    /// Sends SIGTERM and waits; a program that still runs at the deadline is killed, which is an
    /// error.
    pub async fn stop(mut self, deadline: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(deadline).await
    }

    /// Waits until `probe` returns a value; fails at once if the program ends.
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

    /// Waits for a line of output that `wanted` accepts, and returns the result of `wanted`.
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

    /// Kills the rest of the group, then collects its leader: until it is collected, the leader
    /// keeps its ID, so the signal cannot reach an unrelated process.
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

/// Runs a short command and returns its standard output; an error quotes its standard error.
pub async fn run(command: &Command, deadline: Duration) -> Result<String> {
    let output = output(command, deadline).await?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a short command, whatever its exit code.
pub async fn output(command: &Command, deadline: Duration) -> Result<std::process::Output> {
    let mut process = tokio::process::Command::new(command.get_program());
    process.args(command.get_args()).stdin(Stdio::null()).kill_on_drop(true);
    match timeout(deadline, process.output()).await {
        Ok(output) => output.with_context(|| format!("{command:?}")),
        Err(_) => bail!("{command:?}: no end within {deadline:?}"),
    }
}

/// Calls `probe` until it returns a value.
///
/// For programs that send no event when they are ready; await an event where there is one.
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
