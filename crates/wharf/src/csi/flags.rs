use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use wharf_cli::{LogGuard, LogOptions};
use wharf_csi::{Driver, DriverOptions};
use wharf_uds::socket_of;

use super::{
    failure::Failure,
    secrets::{SecretFlags, Secrets},
    session::Session,
};
use crate::runtime::duration;

/// The klog level that logs calls with their requests.
const CALLS: u32 = 4;

/// Flags of every command: how to reach the driver and how to show its answer.
#[derive(Args)]
#[command(next_help_heading = "For every command")]
pub(crate) struct Flags {
    /// The driver's socket: unix:///csi/csi.sock, unix:/csi/csi.sock or a path
    #[arg(long, value_name = "SOCKET", env = "CSI_ENDPOINT", global = true)]
    endpoint: Option<String>,
    /// Limit for one call
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, global = true)]
    timeout: Duration,
    /// Form of the output: a table, or one JSON document with the field names of CSI
    #[arg(short, long, value_enum, default_value = "table", global = true)]
    output: Output,
    /// Make the call even if the driver does not advertise the capability
    #[arg(long, global = true)]
    force: bool,
    /// Log every call with its request, without secrets, to standard error
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(flatten)]
    secrets: SecretFlags,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A table for people
    Table,
    /// JSON for programs
    Json,
}

impl Flags {
    /// Turns the log on with --verbose, until the guard is dropped.
    pub(crate) fn log(&self) -> Result<Option<LogGuard>, Failure> {
        if !self.verbose {
            return Ok(None);
        }
        let options = LogOptions { verbosity: CALLS, ..LogOptions::default() };
        options.init().map(Some).map_err(|error| Failure::Usage(format!("--verbose: {error}")))
    }

    pub(crate) fn open(&self) -> Result<(Session, Output), Failure> {
        if self.timeout.is_zero() {
            return Err(Failure::Usage("--timeout: 0s leaves no time for a call".to_owned()));
        }
        let options = DriverOptions { timeout: self.timeout, ..DriverOptions::default() };
        let driver = Driver::new(self.socket()?, options);
        let secrets = Secrets::read(&self.secrets)?;
        Ok((Session { driver, secrets, force: self.force }, self.output))
    }

    fn socket(&self) -> Result<PathBuf, Failure> {
        let wrong = |text: &dyn std::fmt::Display| Failure::Usage(format!("--endpoint: {text}"));
        let Some(endpoint) = self.endpoint.as_deref().filter(|endpoint| !endpoint.is_empty())
        else {
            return Err(wrong(&"set it or CSI_ENDPOINT, such as unix:///csi/csi.sock"));
        };
        // A path without a scheme may be relative to the working folder, as in a shell.
        if !endpoint.contains(':') {
            return std::path::absolute(endpoint).map_err(|error| wrong(&error));
        }
        socket_of(endpoint).map_err(|error| wrong(&error))
    }
}
