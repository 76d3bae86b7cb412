//! The runtime of every long-running command: threads, a stop on SIGTERM, the exit code, and the
//! last error in the log and the pod's status.

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

/// Idle time after which a thread for system calls ends: each thread keeps memory that it has
/// freed.
const IDLE_CALLER: Duration = Duration::from_millis(500);

/// Time that system calls may take once everything else has ended.
const LAST_CALLS: Duration = Duration::from_secs(2);

/// Interval at which [`give_back_at_rest`] checks whether the process is idle.
const LOOK: Duration = Duration::from_secs(5);
/// Largest processor time between two checks of a process that counts as idle.
const AT_REST: Duration = Duration::from_millis(25);
/// Processor time after which memory may be worth returning.
const A_BURST: Duration = Duration::from_millis(100);

/// The threads of a command.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// One thread, which takes little memory, for a small process such as a sidecar.
    One,
    /// One thread per processor, for the node's own services.
    Cores,
}

/// Flags of the log, for commands of wharf's own.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// Log level: 0 events, 4 details, 8 details of libraries as well
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
    /// Turns the log on, until the guard is dropped.
    pub(crate) fn init(&self) -> Result<LogGuard, LogError> {
        let format = match self.logging_format {
            Logging::Text => LogFormat::Text,
            Logging::Json => LogFormat::Json,
        };
        LogOptions { format, verbosity: self.v, ..LogOptions::default() }.init()
    }
}

/// Parses a duration in Go's form: 30s, 1m30s, 500ms.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let nanos = wharf_cli::go::parse_duration(text).map_err(|error| error.to_string())?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| "must not be negative, expected a time such as 30s".to_owned())
}

/// Runs `main` until it ends; SIGTERM and SIGINT cancel the token. An error goes to the log, or to
/// standard error if the command has no log, and to the pod's status.
pub(crate) fn run<F>(threads: Threads, main: impl FnOnce(CancellationToken) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<ExitCode>>,
{
    raise_open_files();
    // A failure costs a little memory and nothing else.
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
                info!("received a signal, stopping");
                stop.cancel();
            }
        });
        // A thread that hangs in a system call cannot be ended, and must not keep the process
        // alive.
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
        // The pod's status shows the message; outside a pod the file is missing.
        let _ = write_termination_message(TERMINATION_LOG, &error);
        ExitCode::FAILURE
    })
}

/// Returns free memory to the kernel after each burst of work, until `stop`: lists of thousands of
/// objects leave much of it behind.
pub(crate) async fn give_back_at_rest(stop: CancellationToken) {
    let (mut given_back, mut last) = (None, Duration::ZERO);
    while stop.run_until_cancelled(sleep(LOOK)).await.is_some() {
        let used = processor_time();
        let rests = used - last < AT_REST;
        // The start counts as a burst, however short.
        if rests && given_back.is_none_or(|then| used - then > A_BURST) {
            // A panic means that no memory is returned.
            let _ = spawn_blocking(wharf_mount::heap::trim_all).await;
            given_back = Some(processor_time());
        }
        last = used;
    }
}

/// Processor time of all threads since the start.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A thread that waits for a hung disk stays blocked. Each pool may block about 130 threads, and
/// must not use up those of other pools. Threads are started only when a call needs them.
const BLOCKING_THREADS: usize = 1 << 14;

/// Prints an error of the command line, or the help that it asks for.
pub(crate) fn usage(error: &FlagError) -> ExitCode {
    // The exit code remains if standard output is closed.
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

/// Raises the soft limit of open files, as Go programs do: the usual 1,024 is for programs that use
/// select(2).
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // A failure only limits the number of plugins.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
