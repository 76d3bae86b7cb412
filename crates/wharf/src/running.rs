//! What every long-running command does: a runtime, a stop on SIGTERM, an exit code and a last word.

use std::{future::Future, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use wharf_cli::{
    FlagError, LogError, LogFormat, LogGuard, LogOptions, common::TERMINATION_LOG,
    write_termination_message,
};

/// A thread that makes system calls ends this long after its last one: each holds on to memory that it has freed.
const IDLE_CALLER: Duration = Duration::from_millis(500);

/// How long system calls may take once everything else has ended.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// How often a process is asked whether it rests.
const LOOK: Duration = Duration::from_secs(5);
/// A process that rests uses the processor for less than this between two looks.
const AT_REST: Duration = Duration::from_millis(25);
/// Work after which there may be something to give back.
const A_BURST: Duration = Duration::from_millis(100);

/// How many threads a command deserves.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// A small process beside a driver: one thread, little memory.
    One,
    /// The node's own services.
    Cores,
}

/// Flags of the log, for commands that are not a Go program's.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// How much to log: 0 what happens, 4 details, 8 details of libraries as well
    #[arg(short, long, default_value_t = 2)]
    v: u32,
    /// Form of the log
    #[arg(long, value_enum, default_value = "text")]
    logging_format: Logging,
}

#[derive(Clone, Copy, ValueEnum)]
enum Logging {
    Text,
    Json,
}

impl LogArgs {
    /// Turns the log on, until what is returned is dropped.
    pub(crate) fn init(&self) -> Result<LogGuard, LogError> {
        let format = match self.logging_format {
            Logging::Text => LogFormat::Text,
            Logging::Json => LogFormat::Json,
        };
        LogOptions { format, verbosity: self.v, ..LogOptions::default() }.init()
    }
}

/// A duration as Go programs take it: 30s, 1m30s, 500ms.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let nanos = wharf_cli::go::parse_duration(text).map_err(|error| error.to_string())?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| "must not be negative, expected a time such as 30s".to_owned())
}

/// Runs `main` until it ends; the token is cancelled by SIGTERM or SIGINT. An error is the process's last word: in the
/// log, or on standard error where a command has none, and in the pod's status.
pub(crate) fn run<F>(threads: Threads, main: impl FnOnce(CancellationToken) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<ExitCode>>,
{
    raise_open_files();
    // Without it everything still works, in a little more memory.
    let _ = wharf_mount::heap::share();
    let outcome = runtime(threads).and_then(|runtime| {
        let outcome = runtime.block_on(async {
            let stop = CancellationToken::new();
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut main = std::pin::pin!(main(stop.clone()));
            loop {
                tokio::select! {
                    outcome = &mut main => return outcome,
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                info!("stopping on a signal");
                stop.cancel();
            }
        });
        // A thread that hangs in a system call cannot be ended, and must not keep the process.
        runtime.shutdown_timeout(LAST_CALLS);
        outcome
    });
    outcome.unwrap_or_else(|error| {
        let error = wharf_cluster::with_causes(error.as_ref());
        if tracing::dispatcher::has_been_set() {
            error!(%error, "exiting");
        } else {
            eprintln!("wharf: {error}");
        }
        // A pod's status shows it; outside a pod there is no such file.
        let _ = write_termination_message(TERMINATION_LOG, &error);
        ExitCode::FAILURE
    })
}

/// Gives memory back whenever a burst of work is over, until it is told to stop: lists of thousands of objects leave much
/// behind that is free and not the kernel's.
pub(crate) async fn give_back_at_rest(stop: CancellationToken) {
    let (mut given_back, mut last) = (None, Duration::ZERO);
    while stop.run_until_cancelled(sleep(LOOK)).await.is_some() {
        let used = processor_time();
        let rests = used - last < AT_REST;
        // The start is a burst, however short.
        if rests && given_back.is_none_or(|then| used - then > A_BURST) {
            // If it panics, there is nothing to give back.
            let _ = spawn_blocking(wharf_mount::heap::trim_all).await;
            given_back = Some(processor_time());
        }
        last = used;
    }
}

/// Of all threads, since the start.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A thread that waits for a disk that hangs is not given back. Each pool may keep about a hundred and thirty, and must not take
/// those of other pools; nothing is taken that no call needs.
const BLOCKING_THREADS: usize = 1 << 14;

/// Says what is wrong with a command line, or gives the help that was asked for.
pub(crate) fn usage(error: &FlagError) -> ExitCode {
    // Standard output may be closed; the exit code says enough then.
    let _ = error.print();
    ExitCode::from(error.exit_code())
}

fn runtime(threads: Threads) -> anyhow::Result<Runtime> {
    let mut builder = match threads {
        Threads::One => Builder::new_current_thread(),
        Threads::Cores => Builder::new_multi_thread(),
    };
    builder.max_blocking_threads(BLOCKING_THREADS);
    Ok(builder.enable_all().thread_keep_alive(IDLE_CALLER).build()?)
}

/// The usual soft limit of 1,024 open files is for programs that use select(2); Go programs raise it, too.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Without the raise everything still works, only with fewer plugins.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
