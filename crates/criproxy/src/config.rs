//! The hook servers: a folder with one file for each.
//!
//! The files are those of koord-runtime-proxy, with keys of our own. They decide whether pods run
//! with their hooks, so they are read more strictly here:
//!
//! - A file counts only if all of it is valid, and the servers of all files are exchanged at once.
//!   While a file is bad, its last good version stays in force. A call uses the servers that were
//!   in force when it began.
//! - What was mandatory stays mandatory: last good versions survive a restart, a deleted file has a
//!   second to come back, a removed folder changes nothing, and calls are refused while a required
//!   server is missing.
//! - An empty file counts as being written: it has no effect yet.
//! - The process behind a server's socket has to run as root, as the proxy's user or as the user in
//!   the server's file.
//! - Anybody who can write to the folder decides what runs on the node: a file or folder that users
//!   other than root and the proxy's may write to is refused.
//! - A folder that cannot be watched is an error at start, because pods without their hooks seem to
//!   run well.
//!
//! - `server`: a hook server, and all of them in their order.
//! - `file`: parses a file's text as a server; no I/O.
//! - `file_name`: names of files as text, also of those that are not UTF-8; no I/O.
//! - `problem`: errors and warnings about a file.
//! - `folder`: reads the folder, and checks whether it can be trusted.
//! - `config_map`: folders that the kubelet mounts from a ConfigMap.
//! - `entry`: one file with its last good version; no I/O.
//! - `catalog`: the servers in force, from the present and past files of the folder; no I/O.
//! - `last_good`: the last good versions, kept over restarts.
//! - `keeper`: writes last good versions without delaying the servers in force.
//! - `watch`: [`Config`], a folder that is followed.
//! - `follower`: the task that keeps the catalog up to date.
//! - `status`: the state of each server, for people and probes.
//! - `report`: [`check`], how a proxy would read a folder.

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
