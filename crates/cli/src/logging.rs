//! klog's flags, and a subscriber that writes `tracing` events as klog's lines.
//!
//! Users search, parse and alert on the logs of the programs that wharf replaces, so lines keep
//! klog's format (text) and component-base's (JSON):
//!
//! ```text
//! I1115 22:19:09.123456   12345 registrar.rs:88] "Registered" driver="hostpath.csi.k8s.io"
//! {"ts":1795126749123.456,"caller":"src/registrar.rs:88","msg":"Registered","v":0,"driver":"..."}
//! ```
//!
//! `tracing` has levels where klog has numbers: INFO and above always show, DEBUG shows from
//! `-v=4`, TRACE, which release builds leave out, from `-v=6`, both as `I` lines. The fields of the
//! spans around an event precede its own, like the values of a klog logger. Only `main` calls
//! [`LogOptions::init`]; tests use [`LogOptions::layer_for`], which installs nothing.

mod filter;
mod flags;
mod json;
mod layer;
mod output;
mod record;
#[cfg(test)]
mod tests;
mod text;
mod vmodule;

use std::{
    io::{self, Write},
    str::FromStr,
    sync::Arc,
    thread,
    time::Duration,
};

use thiserror::Error;
use tracing_subscriber::{Registry, layer::SubscriberExt};

pub use flags::LoggingFlags;
pub use layer::LogLayer;
pub use vmodule::VModule;

use output::Output;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// klog's structured text.
    #[default]
    Text,
    /// One JSON object per line, in component-base's format.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("unsupported log format, expected text or json".to_owned()),
        }
    }
}

/// Settings of the log. Each field is set by a flag of [`LoggingFlags`].
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The format of lines.
    pub format: LogFormat,
    /// klog's `-v`.
    pub verbosity: u32,
    /// Higher verbosity for some source files.
    pub vmodule: VModule,
    /// Writes errors to standard error and the rest to standard output, instead of all to standard
    /// error.
    pub split_stream: bool,
    /// Bytes for standard output that may be buffered; 0 writes each line at once.
    pub info_buffer: usize,
    /// How long a line may be buffered.
    pub flush_every: Duration,
    /// Text only: omits the part up to `]`.
    pub skip_headers: bool,
    /// Text only: includes the folder of the source file.
    pub add_dir_header: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            verbosity: 0,
            vmodule: VModule::default(),
            split_stream: false,
            info_buffer: 0,
            flush_every: Duration::from_secs(5),
            skip_headers: false,
            add_dir_header: false,
        }
    }
}

impl LogOptions {
    /// Installs these settings for the process, until it ends. Keep the guard as long as lines are
    /// to be written.
    pub fn init(&self) -> Result<LogGuard, LogError> {
        let output = Arc::new(if self.split_stream {
            Output::split(Box::new(io::stderr()), Box::new(io::stdout()), self.info_buffer)
        } else {
            Output::single(Box::new(io::stderr()))
        });
        let layer = LogLayer::new(self, Arc::clone(&output));
        tracing::subscriber::set_global_default(Registry::default().with(layer))
            .map_err(|_| LogError::AlreadySet)?;
        LogGuard::new(output, self.flush_every)
    }

    /// A layer that writes the same lines to `writer`.
    pub fn layer_for(&self, writer: impl Write + Send + 'static) -> LogLayer {
        LogLayer::new(self, Arc::new(Output::single(Box::new(writer))))
    }
}

/// Why logging cannot be set up.
#[derive(Debug, Error)]
pub enum LogError {
    /// A subscriber is installed already.
    #[error("logging is already set up in this process: call LogOptions::init once, in main")]
    AlreadySet,
    /// The thread that flushes buffered lines cannot be started.
    #[error("cannot start the thread that --log-flush-frequency needs")]
    Flusher(#[source] io::Error),
}

/// Flushes buffered lines when dropped.
#[derive(Debug)]
pub struct LogGuard {
    output: Arc<Output>,
    flusher: Option<thread::JoinHandle<()>>,
}

impl LogGuard {
    fn new(output: Arc<Output>, flush_every: Duration) -> Result<Self, LogError> {
        let mut guard = Self { output, flusher: None };
        if guard.output.is_buffered() {
            let output = Arc::clone(&guard.output);
            let thread = thread::Builder::new()
                .name("log-flush".to_owned())
                .spawn(move || output.flush_until_closed(flush_every))
                .map_err(LogError::Flusher)?;
            guard.flusher = Some(thread);
        }
        Ok(guard)
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.output.close();
        if let Some(flusher) = self.flusher.take() {
            // A panic of the flusher was printed by the panic hook.
            drop(flusher.join());
        }
    }
}
