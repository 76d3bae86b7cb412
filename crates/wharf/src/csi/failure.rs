use std::{fmt, process::ExitCode};

use tonic::{Code, Status};
use wharf_csi::{ErrorClass, class};
use wharf_uds::code_name;

use super::{need::Need, secrets::Secrets};
use crate::text::plain;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A mistake on the command line.
    Usage(String),
    /// No connection to the driver.
    Unreachable(String),
    /// The driver answered with an error.
    Refused { rpc: &'static str, code: Code, message: String },
    /// The driver does not advertise a capability that the call needs, so no call was made.
    Missing { rpc: &'static str, need: Need },
    /// The driver's answer violates the protocol.
    Wrong { rpc: &'static str, what: String },
    /// The user interrupted the command.
    Interrupted,
    /// Standard output could not be written.
    Output(String),
}

impl Failure {
    pub(crate) fn refused(rpc: &'static str, status: &Status) -> Self {
        Self::Refused { rpc, code: status.code(), message: status.message().to_owned() }
    }

    /// The same failure without secrets that the driver quoted.
    pub(crate) fn without(self, secrets: &Secrets) -> Self {
        match self {
            Self::Refused { rpc, code, message } => {
                Self::Refused { rpc, code, message: secrets.strip(&message) }
            }
            Self::Wrong { rpc, what } => Self::Wrong { rpc, what: secrets.strip(&what) },
            other => other,
        }
    }

    /// Prints the failure to standard error, and returns the exit code.
    pub(crate) fn print(&self) -> ExitCode {
        eprintln!("wharf csi: {self}");
        ExitCode::from(match self {
            Self::Refused { .. } | Self::Missing { .. } | Self::Wrong { .. } => 1,
            Self::Interrupted | Self::Output(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable(_) => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Output(text) => formatter.write_str(&plain(text)),
            Self::Unreachable(text) => write!(formatter, "the driver is not reachable: {}", plain(text)),
            Self::Refused { rpc, code, message } => {
                write!(formatter, "{rpc} failed with {}: {}", code_name(*code), plain(message))?;
                match class(&Status::new(*code, ""), true) {
                    // The kubelet treats ResourceExhausted as uncertain, but a driver that answers
                    // it has no space and has stopped working on the call.
                    _ if *code == Code::ResourceExhausted => Ok(()),
                    ErrorClass::Uncertain => formatter.write_str(
                        " (the driver may still work on the call, or have done it: repeat the call before you undo anything)",
                    ),
                    _ => Ok(()),
                }
            }
            Self::Missing { rpc, need } => {
                write!(formatter, "{rpc} was not called: the driver does not advertise {need}.")?;
                if let Some(instead) = need.instead() {
                    write!(formatter, " {instead}")?;
                }
                formatter.write_str(" --force makes the call anyway.")
            }
            Self::Wrong { rpc, what } => write!(formatter, "invalid answer to {rpc}: {}", plain(what)),
            Self::Interrupted => formatter.write_str(
                "interrupted; the driver may still work on the call, repeat the call before you undo anything",
            ),
        }
    }
}
