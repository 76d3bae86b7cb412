//! Which hook servers there are: a folder with one file for each.
//!
//! The files are those of koord-runtime-proxy, with keys of our own. What it is relaxed about
//! decides whether pods run as they should, so it is read with more care here:
//!
//! - A file counts only once all of it is valid, and the servers of all files are exchanged at once.
//!   While a file is bad, what it last said stays in force. A call goes by the servers there were
//!   when it began.
//! - What was mandatory stays mandatory: last good versions survive a restart, a deleted file has a
//!   second to come back, a folder that is gone changes nothing, and a required server that is
//!   missing refuses calls.
//! - An empty file is one that is being written: it says nothing yet.
//! - The process behind a server's socket has to be root's, our own or that of the user in its file.
//! - Who can write to the folder decides what runs on the node: a file or folder that others than
//!   root or ourselves may write to is refused.
//! - A folder that cannot be watched is an error at start, since pods without their hooks look well
//!   until somebody looks closely.
//!
//! - `server`: a hook server, and all of them in their order.
//! - `file`: a file's text as a server; no I/O.
//! - `file_name`: names of files as text, also of those that are not UTF-8; no I/O.
//! - `problem`: what can be said of a file.
//! - `folder`: what is in the folder, and whether it can be trusted.
//! - `config_map`: folders that the kubelet mounts from a ConfigMap.
//! - `entry`: one file with its last good version; no I/O.
//! - `catalog`: the servers in force, from what is and was in the folder; no I/O.
//! - `last_good`: the last good versions, kept over restarts.
//! - `keeper`: writing them, which must not hold up what is in force.
//! - `watch`: [`Config`], a folder that is followed.
//! - `follower`: the task that keeps the catalog up to date.
//! - `status`: the state of each server, for people and probes.
//! - `report`: [`check`], what a proxy would make of a folder.

mod catalog;
mod config_map;
mod entry;
mod file;
mod file_name;
mod folder;
mod follower;
mod keeper;
mod last_good;
mod problem;
mod report;
mod server;
mod status;
mod watch;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use file::{parse, refusing_points};
pub(crate) use folder::trust_socket;
pub use folder::{FolderError, trust_file};
pub use problem::{FileError, FileWarning};
pub use report::{Finding, Report, check};
pub(crate) use server::Barred;
pub use server::{Answers, Server, Servers};
pub use status::{ConfigStatus, Effect, FileState, ServerStatus};
pub use watch::{Config, ConfigError, ConfigHandle, ConfigOptions};
pub use wharf_facts::hook::FailurePolicy;
