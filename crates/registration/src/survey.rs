//! Lists the plugins of a plugins_registry folder. Calls `GetInfo` only: a plugin that is notified
//! of a failed registration would exit.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;
use tokio::task::JoinSet;
use tonic::Code;
use wharf_dirwatch::{Depth, FileId, Kind, Options, scan};

use crate::{
    manager::{Dial, SocketDial},
    text::readable,
};

/// Plugins queried in parallel.
const PARALLELISM: usize = 64;

/// The result of querying a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// A plugin that answers `GetInfo`.
    Answers,
    /// The peer does not answer in time.
    Silent,
    /// Nothing listens on the socket.
    Dead,
    /// The peer is not a plugin.
    Broken,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The registration socket.
    pub socket: PathBuf,
    /// Plugin type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Plugin name.
    pub name: Option<String>,
    /// The socket of the plugin's own service.
    pub endpoint: Option<String>,
    /// Versions that the plugin supports.
    pub versions: Vec<String>,
    /// The result of the query.
    pub state: Answer,
    /// Why the query failed.
    pub error: Option<String>,
}

/// The sockets below `root` that a plugin manager would find.
pub fn sockets(root: &Path) -> io::Result<BTreeMap<PathBuf, FileId>> {
    scan(&Options {
        root: root.to_owned(),
        depth: Depth::Tree,
        kind: Kind::Socket,
        rescan: Duration::from_secs(10),
        create_root: None,
    })
}

/// Queries every plugin below `root`, waiting at most `patience` for each connection.
pub async fn look(root: &Path, patience: Duration) -> io::Result<Vec<Line>> {
    let mut waiting: Vec<PathBuf> = sockets(root)?.into_keys().rev().collect();
    let mut asking = JoinSet::new();
    let mut lines = Vec::new();
    loop {
        while asking.len() < PARALLELISM
            && let Some(socket) = waiting.pop()
        {
            asking.spawn(ask(socket, patience));
        }
        match asking.join_next().await {
            Some(line) => lines.extend(line.ok()),
            None => break,
        }
    }
    lines.sort_by(|a: &Line, b: &Line| a.socket.cmp(&b.socket));
    Ok(lines)
}

/// Queries the plugin at `socket`.
pub async fn ask(socket: PathBuf, patience: Duration) -> Line {
    let mut line = Line {
        kind: None,
        name: None,
        endpoint: None,
        versions: Vec::new(),
        state: Answer::Dead,
        error: None,
        socket,
    };
    let mut conversation = match SocketDial.dial(&line.socket, patience).await {
        Ok(conversation) => conversation,
        Err(error) => {
            line.error = Some(readable(&error));
            return line;
        }
    };
    match conversation.info().await {
        Ok(info) => {
            line.state = Answer::Answers;
            line.endpoint = Some(match info.endpoint.is_empty() {
                true => line.socket.display().to_string(),
                false => info.endpoint,
            });
            line.kind = Some(info.r#type);
            line.name = Some(info.name);
            line.versions = info.supported_versions;
        }
        Err(status) => {
            line.state = match status.code() {
                Code::DeadlineExceeded => Answer::Silent,
                _ => Answer::Broken,
            };
            line.error = Some(readable(status.message()));
        }
    }
    line
}
