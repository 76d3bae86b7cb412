//! A look at a plugins_registry folder for people. It asks `GetInfo` and nothing else: a plugin that is told it is not
//! registered would end itself.

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

/// Plugins asked at once.
const PARALLELISM: usize = 64;

/// What stands behind a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// A plugin that says who it is.
    Answers,
    /// Something that does not answer in time.
    Silent,
    /// Nobody listens.
    Dead,
    /// Something that is no plugin.
    Broken,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The registration socket.
    pub socket: PathBuf,
    /// Plugin type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Plugin name.
    pub name: Option<String>,
    /// Where it serves its own protocol.
    pub endpoint: Option<String>,
    /// Versions that it names.
    pub versions: Vec<String>,
    /// What stands behind the socket.
    pub state: Answer,
    /// What went wrong.
    pub error: Option<String>,
}

/// The sockets in a folder, as a plugin manager would find them.
pub fn sockets(root: &Path) -> io::Result<BTreeMap<PathBuf, FileId>> {
    scan(&Options {
        root: root.to_owned(),
        depth: Depth::Tree,
        kind: Kind::Socket,
        rescan: Duration::from_secs(10),
        create_root: None,
    })
}

/// Asks every plugin below `root` who it is, `patience` each for connecting.
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

/// Asks one plugin.
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
