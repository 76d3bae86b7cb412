//! The admin socket, on which `wharf driver pool` sends commands to a running driver: a driver's
//! pools have one owner.
//!
//! A connection carries one request and one answer, each a line of JSON.

use std::{io, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use rustix::{
    fs::{Mode, fchmod},
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_to, listen,
        socket_with,
    },
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    error::Error,
    inspect::{self, Finding, PoolUsage, Row},
    pool::Repaired,
    pools::{PoolState, PoolStatus, Pools, ServedPool},
    private,
    store::State,
};

/// Maximum size of a request.
const MAX_REQUEST: u64 = 4096;
/// Maximum number of callers that wait to be accepted.
const BACKLOG: i32 = 128;
/// Timeout of most requests, and of writing an answer.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout until an adopted pool is served.
const ADOPT_TIMEOUT: Duration = Duration::from_secs(600);
/// Timeout of a repair.
pub const REPAIR_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

/// A request about one pool, or all pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Name or UUID of the pool; `None` means all.
    pub pool: Option<String>,
    /// The command.
    pub question: Question,
}

/// Commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// List volumes and snapshots.
    List,
    /// Report usage.
    Usage,
    /// Compare records with images.
    Check,
    /// Repair the filesystem of the volume with this id.
    Repair(String),
    /// Serve the pool that is in the folder of the configured pool with this name.
    Adopt(String),
    /// Forget the pool with this name; its volumes are treated as deleted.
    Forget(String),
    /// Start or stop draining a pool: a drained pool takes no new volumes.
    Drain {
        /// The pool's name.
        pool: String,
        /// Whether to drain it.
        on: bool,
    },
}

impl Question {
    /// Timeout of the answer.
    pub fn timeout(&self) -> Duration {
        match self {
            Self::List | Self::Usage | Self::Check | Self::Forget(_) | Self::Drain { .. } => {
                TIMEOUT
            }
            // A large pool needs recovery first.
            Self::Adopt(_) => ADOPT_TIMEOUT,
            Self::Repair(_) => REPAIR_TIMEOUT,
        }
    }
}

/// Answers to requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Volumes and snapshots.
    List(Vec<Row>),
    /// Usage of pools.
    Usage(Vec<PoolUsage>),
    /// Differences between records and images.
    Check(Vec<Finding>),
    /// Result of a repair.
    Repair(Repaired),
    /// Text for a person about what was done.
    Done(String),
    /// The request failed, for the reason in the text.
    Failed(String),
}

/// Binds the socket, replacing an old one: the driver's folder is locked, so the process that bound
/// it has ended.
///
/// # Errors
/// If the socket cannot be bound.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    let fresh = path.with_extension("sock.new");
    for old in [&fresh, path] {
        match std::fs::remove_file(old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let kind = SocketType::STREAM;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // The socket file gets the socket's mode, less the umask, so it is never open to other users.
    fchmod(&socket, Mode::from_raw_mode(private::FILE))?;
    bind_to(&socket, &SocketAddrUnix::new(&fresh)?)?;
    listen(&socket, BACKLOG)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(private::FILE))?;
    std::fs::rename(&fresh, path)?;
    UnixListener::from_std(socket.into())
}

/// Answers requests until `stop`.
pub async fn serve(listener: UnixListener, pools: Arc<Pools>, stop: CancellationToken) {
    let mut callers = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            caller = listener.accept() => match caller {
                Ok((stream, _)) => {
                    let pools = pools.clone();
                    callers.spawn(async move {
                        // The caller has gone: there is no receiver for an error.
                        let _ = answer(stream, pools).await;
                    });
                }
                Err(error) => {
                    // Usually too many open files, which is temporary.
                    tracing::warn!(%error, "failed to accept on admin socket, retrying");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
            Some(_) = callers.join_next() => {}
        }
    }
    callers.shutdown().await;
    let _ = std::fs::remove_file(pools.state_dir().own_admin_socket());
}

async fn answer(mut stream: UnixStream, pools: Arc<Pools>) -> io::Result<()> {
    let (from, mut to) = stream.split();
    let mut line = String::new();
    let mut reader = BufReader::new(from.take(MAX_REQUEST));
    timeout(TIMEOUT, reader.read_line(&mut line)).await??;
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) => {
            let limit = request.question.timeout();
            let answer = tokio::task::spawn_blocking(move || pools.answer(&request));
            match timeout(limit, answer).await {
                Ok(answer) => answer.unwrap_or_else(|error| Answer::Failed(error.to_string())),
                Err(_) => Answer::Failed(format!("no answer within {limit:?}")),
            }
        }
        Err(error) => Answer::Failed(format!("the request cannot be parsed: {error}")),
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    timeout(TIMEOUT, to.write_all(&bytes)).await?
}

impl Pools {
    fn answer(self: &Arc<Self>, request: &Request) -> Answer {
        let answered = self.try_answer(request);
        answered.unwrap_or_else(|error| Answer::Failed(error.to_string()))
    }

    fn try_answer(self: &Arc<Self>, request: &Request) -> Result<Answer, Error> {
        let meant = self.meant(request.pool.as_deref());
        Ok(match &request.question {
            Question::List => {
                let mut rows = Vec::new();
                for served in meant? {
                    let layout = served.pool.layout();
                    let state = served.pool.store().snapshot();
                    rows.extend(inspect::list(&served.name, layout, &state));
                }
                Answer::List(rows)
            }
            Question::Usage => Answer::Usage(self.usage(request.pool.as_deref())?),
            Question::Check => {
                let mut findings = Vec::new();
                for served in meant? {
                    let layout = served.pool.layout();
                    findings.extend(inspect::check(layout, &served.pool.store().snapshot())?);
                }
                let meant = |it: &PoolStatus| request.pool.as_ref().is_none_or(|pool| it.is(pool));
                let status = self.status().into_iter().filter(meant);
                findings.extend(status.filter_map(|it| inspect::check_served(&it)));
                Answer::Check(findings)
            }
            Question::Repair(id) => {
                Answer::Repair(self.of_volume(id)?.pool.repair(id, REPAIR_TIMEOUT)?)
            }
            Question::Adopt(name) => Answer::Done(self.adopt(name)?),
            Question::Forget(name) => Answer::Done(self.forget(name)?),
            Question::Drain { pool, on } => Answer::Done(self.drain(pool, *on)?),
        })
    }

    /// The served pools that a request is about.
    fn meant(&self, pool: Option<&str>) -> Result<Vec<Arc<ServedPool>>, Error> {
        let mut served = self.served();
        let Some(meant) = pool else { return Ok(served) };
        served.retain(|it| it.name == meant || it.pool.id().to_string() == meant);
        match (served.is_empty(), self.status().into_iter().find(|it| it.is(meant))) {
            (false, _) => Ok(served),
            (true, Some(status)) => Err(Error::Unavailable(status.to_string())),
            (true, None) => Err(Error::NoPool(meant.to_owned())),
        }
    }

    /// Usage of the pools that a request is about, including pools that are not served.
    fn usage(&self, pool: Option<&str>) -> Result<Vec<PoolUsage>, Error> {
        let served = self.served();
        let mut all = Vec::new();
        for status in self.status() {
            if pool.is_some_and(|meant| !status.is(meant)) {
                continue;
            }
            let served = served.iter().find(|served| served.name == status.name);
            // If another disk is mounted in the pool's folder, its usage is not the pool's.
            let served = served.filter(|_| !matches!(status.state, PoolState::Absent(_)));
            let usage = served.map(|served| {
                let account = served.pool.account()?;
                let report = |state: &State| inspect::usage(account, state);
                Ok::<_, Error>(served.pool.store().read(report))
            });
            all.push(PoolUsage { pool: status, usage: usage.transpose()? });
        }
        match pool {
            Some(meant) if all.is_empty() => Err(Error::NoPool(meant.to_owned())),
            _ => Ok(all),
        }
    }
}
