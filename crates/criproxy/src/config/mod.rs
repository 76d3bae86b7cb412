//! Which hook servers there are: a folder with one file for each.
//!
//! The files are those of koord-runtime-proxy, with three keys of our own. What it is relaxed about
//! decides whether pods run as they should, so it is read with more care here:
//!
//! - A file counts only once all of it is valid, and the servers of all files are exchanged at once.
//!   While a file is bad, what it last said stays in force. A call goes by the servers there were
//!   when it began.
//! - An empty file is one that is being written: it says nothing yet.
//! - Who can write to the folder decides what runs on the node: a file or folder that others than
//!   root or ourselves may write to is refused.
//! - A folder that cannot be watched is an error at start, since pods without their hooks look well
//!   until somebody looks closely.
//!
//! - `server`: a hook server, and all of them in their order.
//! - `file`: a file's text as a server; no I/O.
//! - `problem`: what can be said of a file.
//! - `folder`: what is in the folder, and whether it can be trusted.
//! - `catalog`: what is in force, from what is and was in the folder; no I/O.
//! - `watch`: [`Config`], the task that keeps the catalog up to date.
//! - `report`: [`check`], the same for people.

mod catalog;
mod file;
mod folder;
mod problem;
mod report;
mod server;
mod watch;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use file::parse;
pub use folder::{FolderError, trust_file};
pub use problem::{FileError, FileWarning};
pub use report::{Finding, Report, check};
pub use server::{Server, Servers};
pub use watch::{Config, ConfigError};
pub use wharf_facts::hook::FailurePolicy;
