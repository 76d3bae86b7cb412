use std::io::{self, Write};

use thiserror::Error;

/// Why a command line does not run the command.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FlagError {
    /// Help was requested; this is its text.
    #[error("{0}")]
    Help(String),
    /// The command line is wrong.
    #[error("{message}\n{usage}")]
    Usage {
        /// The fault, with the message of the Go package.
        message: String,
        /// The help of the flag concerned, and how to get the rest.
        usage: String,
    },
}

impl FlagError {
    /// The exit code of Go programs: 0 after help, 2 after a wrong command line.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Help(_) => 0,
            Self::Usage { .. } => 2,
        }
    }

    /// Prints the text: help to standard output, errors to standard error.
    pub fn print(&self) -> io::Result<()> {
        match self {
            Self::Help(_) => writeln!(io::stdout(), "{self}"),
            Self::Usage { .. } => writeln!(io::stderr(), "{self}"),
        }
    }
}
