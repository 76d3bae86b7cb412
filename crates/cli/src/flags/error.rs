use std::io::{self, Write};

use thiserror::Error;

/// Why a command line does not lead to a run of the command.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum FlagError {
    /// Help was asked for: this is its text.
    #[error("{0}")]
    Help(String),
    /// The command line is wrong.
    #[error("{message}\n{usage}")]
    Usage {
        /// What is wrong, in the words of the Go package that is followed.
        message: String,
        /// What to do: the help of the flag concerned, and how to get the rest.
        usage: String,
    },
}

impl FlagError {
    /// The exit code that Go programs end with: 0 after help, 2 after a mistake.
    pub fn exit_code(&self) -> u8 {
        match self {
            FlagError::Help(_) => 0,
            FlagError::Usage { .. } => 2,
        }
    }

    /// Writes the text where it belongs: help that was asked for to standard output, so that it
    /// can be paged and searched; mistakes to standard error.
    pub fn print(&self) -> io::Result<()> {
        match self {
            FlagError::Help(_) => writeln!(io::stdout(), "{self}"),
            FlagError::Usage { .. } => writeln!(io::stderr(), "{self}"),
        }
    }
}
