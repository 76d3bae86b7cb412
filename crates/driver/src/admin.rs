//! The socket through which `wharf driver pool` asks a running driver, since one process owns its pools.
//!
//! One question per connection, one line of JSON each way.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_to, listen, socket_with,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::inspect::{self, Finding, PoolUsage, Row};
use crate::pool::Repaired;
use crate::pools::{PoolState, PoolStatus, Pools, ServedPool};
use crate::private;
use crate::store::State;

/// A question is a word, or two; longer ones are none.
const LONGEST: u64 = 4096;
/// Callers that may wait for their turn.
const BACKLOG: i32 = 128;
/// How long a caller has to ask and the driver to answer.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take until an adopted pool is served.
const ADOPT_PATIENCE: Duration = Duration::from_secs(600);
/// How long a repair may take.
pub const REPAIR_PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// Between two attempts to accept a caller.
const AGAIN: Duration = Duration::from_millis(200);

/// A question about one pool, or all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The pool that is meant, by name or UUID; none means all.
    pub pool: Option<String>,
    /// What is asked.
    pub question: Question,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What is in the pools.
    List,
    /// How full they are.
    Usage,
    /// Whether records and images agree.
    Check,
    /// Repair the filesystem of the volume with this id.
    Repair(String),
    /// Serve what is in the folder of the pool with this name.
    Adopt(String),
    /// Take the volumes of the pool with this name for gone.
    Forget(String),
    /// Close a pool to new volumes, or open it to them again.
    Drain {
        /// The pool's name.
        pool: String,
        /// Whether it is closed.
        on: bool,
    },
}

impl Question {
    /// How long the answer may take.
    pub fn patience(&self) -> Duration {
        match self {
            Self::List | Self::Usage | Self::Check | Self::Forget(_) | Self::Drain { .. } => {
                PATIENCE
            }
            // A large pool is brought to order first.
            Self::Adopt(_) => ADOPT_PATIENCE,
            Self::Repair(_) => REPAIR_PATIENCE,
        }
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What is in the pools.
    List(Vec<Row>),
    /// How full they are.
    Usage(Vec<PoolUsage>),
    /// Where records and images disagree.
    Check(Vec<Finding>),
    /// What a repair did.
    Repair(Repaired),
    /// What was done, for a person.
    Done(String),
    /// Why there is no answer.
    Failed(String),
}

/// The bound socket. The driver's folder is locked, so whoever bound it before is gone.
///
/// # Errors
/// When it cannot be bound.
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
    // A bound socket's file has the mode of the socket, less the umask: nobody can ever connect who should not.
    fchmod(&socket, Mode::from_raw_mode(private::FILE))?;
    bind_to(&socket, &SocketAddrUnix::new(&fresh)?)?;
    listen(&socket, BACKLOG)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(private::FILE))?;
    std::fs::rename(&fresh, path)?;
    UnixListener::from_std(socket.into())
}

/// Answers until `stop`.
pub async fn serve(listener: UnixListener, pools: Arc<Pools>, stop: CancellationToken) {
    let mut callers = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            caller = listener.accept() => match caller {
                Ok((stream, _)) => {
                    let pools = pools.clone();
                    callers.spawn(async move {
                        // A caller that went away has no use for an error.
                        let _ = answer(stream, pools).await;
                    });
                }
                Err(error) => {
                    // Too many open files, as a rule, which passes.
                    tracing::warn!(%error, "failed to accept a caller of the admin socket, trying again");
                    tokio::time::sleep(AGAIN).await;
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
    let mut reader = BufReader::new(from.take(LONGEST));
    timeout(PATIENCE, reader.read_line(&mut line)).await??;
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) => {
            let patience = request.question.patience();
            let answer = tokio::task::spawn_blocking(move || pools.answer(&request));
            match timeout(patience, answer).await {
                Ok(answer) => answer.unwrap_or_else(|error| Answer::Failed(error.to_string())),
                Err(_) => Answer::Failed(format!("no answer within {patience:?}")),
            }
        }
        Err(error) => Answer::Failed(format!("the question is not understood: {error}")),
    };
    let mut bytes = serde_json::to_vec(&answer)?;
    bytes.push(b'\n');
    timeout(PATIENCE, to.write_all(&bytes)).await?
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
                Answer::Repair(self.of_volume(id)?.pool.repair(id, REPAIR_PATIENCE)?)
            }
            Question::Adopt(name) => Answer::Done(self.adopt(name)?),
            Question::Forget(name) => Answer::Done(self.forget(name)?),
            Question::Drain { pool, on } => Answer::Done(self.drain(pool, *on)?),
        })
    }

    /// The served pools that a question is about.
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

    /// The accounts of the pools that a question is about, also of those that are not served.
    fn usage(&self, pool: Option<&str>) -> Result<Vec<PoolUsage>, Error> {
        let served = self.served();
        let mut all = Vec::new();
        for status in self.status() {
            if pool.is_some_and(|meant| !status.is(meant)) {
                continue;
            }
            let served = served.iter().find(|served| served.name == status.name);
            // Another disk in its place has figures of its own.
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
