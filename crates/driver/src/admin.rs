//! The socket through which `wharf driver pool` asks a running driver, since one process owns a pool.
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
use crate::inspect::{self, Finding, Row, UsageReport};
use crate::pool::{Pool, Repaired};
use crate::private;

/// A question is a word, or two; longer ones are none.
const LONGEST: u64 = 1024;
/// Callers that may wait for their turn.
const BACKLOG: i32 = 128;
/// How long a caller has to ask and the driver to answer.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long a repair may take.
pub const REPAIR_PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What is in the pool.
    List,
    /// How full it is.
    Usage,
    /// Whether records and images agree.
    Check,
    /// Repair the filesystem of the volume with this id.
    Repair(String),
}

impl Question {
    /// How long the answer may take.
    pub fn patience(&self) -> Duration {
        match self {
            Self::List | Self::Usage | Self::Check => PATIENCE,
            Self::Repair(_) => REPAIR_PATIENCE,
        }
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What is in the pool.
    List(Vec<Row>),
    /// How full it is.
    Usage(UsageReport),
    /// Where records and images disagree.
    Check(Vec<Finding>),
    /// What a repair did.
    Repair(Repaired),
    /// Why there is no answer.
    Failed(String),
}

/// The bound socket. The pool's lock is held, so whoever bound it before is gone.
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
pub async fn serve(listener: UnixListener, pool: Arc<Pool>, stop: CancellationToken) {
    let mut callers = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            caller = listener.accept() => match caller {
                Ok((stream, _)) => {
                    let pool = pool.clone();
                    callers.spawn(async move {
                        // A caller that went away has no use for an error.
                        let _ = answer(stream, pool).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin socket takes no callers");
                    break;
                }
            },
            Some(_) = callers.join_next() => {}
        }
    }
    callers.shutdown().await;
    let _ = std::fs::remove_file(pool.layout().admin_socket());
}

async fn answer(mut stream: UnixStream, pool: Arc<Pool>) -> io::Result<()> {
    let (from, mut to) = stream.split();
    let mut line = String::new();
    let mut reader = BufReader::new(from.take(LONGEST));
    timeout(PATIENCE, reader.read_line(&mut line)).await??;
    let answer = match serde_json::from_str::<Question>(&line) {
        Ok(question) => {
            let patience = question.patience();
            let answer = tokio::task::spawn_blocking(move || pool.answer(&question));
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

impl Pool {
    fn answer(&self, question: &Question) -> Answer {
        let answered = match question {
            Question::List => {
                Ok(Answer::List(self.store().read(|state| inspect::list(self.layout(), state))))
            }
            Question::Usage => self.account().map(|account| {
                Answer::Usage(self.store().read(|state| inspect::usage(account, state)))
            }),
            Question::Check => {
                self.store().read(|state| inspect::check(self.layout(), state)).map(Answer::Check)
            }
            Question::Repair(id) => self.repair(id, REPAIR_PATIENCE).map(Answer::Repair),
        };
        answered.unwrap_or_else(|error: Error| Answer::Failed(error.to_string()))
    }
}
