//! The sockets of a proxy: bound here, passed by the service manager, or passed by the predecessor.

use std::{
    fs::create_dir_all,
    io::{self, Read},
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use rustix::net::{AddressFamily, sockopt::socket_domain};
use tokio::{net::UnixStream, task::spawn_blocking};
use tracing::info;
use wharf_criproxy::{
    ControlAnswer, ControlQuestion, Hello, PassedFile, PassedSocket, Predecessor,
};
use wharf_uds::{
    ListenError, ListenOptions, Listener, ListenerHandle, SocketFile, begin_ask, bound_path,
    receive_files,
};

use super::{
    inherited::{self, Inherited},
    successor::CHANNEL,
};

/// Limit for a running proxy to pass its sockets: it may be handing over to another process first.
const PASS: Duration = Duration::from_secs(30);

/// The addresses of a proxy, and whether to take them over.
#[derive(Clone, Copy)]
pub(super) struct Addresses<'a> {
    pub(super) listen: &'a Path,
    pub(super) control: &'a Path,
    pub(super) http: Option<&'a str>,
}

/// The sockets of a proxy.
pub(super) struct Sockets {
    pub(super) runtime: Listener,
    /// The control socket; `None` if it is still to be bound.
    control: Option<Listener>,
    /// The HTTP endpoint's socket; `None` if it is still to be bound.
    pub(super) http: Option<TcpListener>,
    /// The proxy that serves the sockets until the hand-over.
    pub(super) predecessor: Option<Predecessor>,
    /// Whether the predecessor has started this process, and reports it to the service manager.
    pub(super) is_announced: bool,
    /// Socket files to remove at the end, unless a successor serves them.
    remove: [bool; 2],
}

impl Sockets {
    /// Obtains the sockets: inherited from a predecessor or the service manager, taken over, or
    /// bound here.
    pub(super) async fn open(addresses: Addresses<'_>, take_over: bool) -> anyhow::Result<Self> {
        let mut inherited = inherited::take()?;
        let channel = inherited.iter().position(|socket| socket.name == CHANNEL);
        if let Some(channel) = channel {
            let channel = StdStream::from(inherited.remove(channel).socket);
            let sockets = inherited.into_iter().map(|socket| socket.socket).collect();
            let adopted = adopt(addresses, channel, sockets).await?;
            return Ok(Sockets { is_announced: true, ..adopted });
        }
        if take_over && let Some((channel, sockets)) = ask_for_sockets(addresses.control).await? {
            return adopt(addresses, channel, sockets).await;
        }
        own(addresses, inherited)
    }

    /// Returns the control socket, and binds it if nobody has. It is in the state folder, which
    /// must exist with its mode.
    pub(super) fn control(&mut self, path: &Path) -> anyhow::Result<Listener> {
        self.control.take().map_or_else(|| bind(path).context("--control"), Ok)
    }

    /// Marks the socket files as ours to remove at the end, and the control socket's file as well.
    pub(super) fn keep(&mut self, questions: &mut Listener) {
        let [runtime, control] = self.remove;
        self.runtime.remove_file(runtime);
        questions.remove_file(control);
    }
}

/// Binds the sockets that the service manager has not passed.
fn own(addresses: Addresses<'_>, inherited: Vec<Inherited>) -> anyhow::Result<Sockets> {
    let Addresses { listen, control, http } = addresses;
    let activated = !inherited.is_empty();
    let (mut unix, mut tcp) = (Vec::new(), Vec::new());
    for Inherited { name, socket } in inherited {
        match socket_domain(&socket) {
            Ok(AddressFamily::UNIX) => unix.push(socket),
            Ok(AddressFamily::INET | AddressFamily::INET6) if http.is_some() => tcp.push(socket),
            _ => bail!("the service manager passes a socket {name}, which a proxy does not serve"),
        }
    }
    ensure!(tcp.len() <= 1, "the service manager passes more than one socket for --http-endpoint");
    let runtime = inherit(listen, &mut unix)?;
    if activated && runtime.is_none() {
        let bound: Vec<_> = unix.iter().filter_map(bound_path).collect();
        bail!(
            "the service manager passes no socket for --listen {}, but {bound:?}: name the same path \
             in the socket unit",
            listen.display()
        );
    }
    let runtime = runtime.map_or_else(|| bind(listen), Ok)?;
    let questions = inherit(control, &mut unix)?;
    if let Some(other) = unix.first() {
        bail!(
            "the service manager passes a socket at {:?}, which is neither --listen nor --control",
            bound_path(other).unwrap_or_default()
        );
    }
    let http = tcp.pop().map(TcpListener::from);
    // Only files of sockets that are bound here are ours to remove.
    let remove = [runtime.handle().file().remove, questions.is_none()];
    Ok(Sockets {
        runtime,
        control: questions,
        http,
        predecessor: None,
        is_announced: false,
        remove,
    })
}

/// Takes the socket for `path` out of the service manager's sockets.
fn inherit(path: &Path, sockets: &mut Vec<OwnedFd>) -> anyhow::Result<Option<Listener>> {
    let same = |socket: &OwnedFd| {
        bound_path(socket).and_then(|it| Some(it.file_name()? == path.file_name()?))
    };
    let Some(found) = sockets.iter().position(|socket| same(socket) == Some(true)) else {
        return Ok(None);
    };
    let socket = sockets.remove(found);
    Ok(Some(Listener::inherit(socket, path, &ListenOptions::default())?))
}

/// Binds a socket, and creates its folder if it is missing.
fn bind(socket: &Path) -> anyhow::Result<Listener> {
    if let Some(folder) = socket.parent() {
        create_dir_all(folder)
            .with_context(|| format!("folder of the socket {}", socket.display()))?;
    }
    Ok(Listener::bind(socket, &ListenOptions::default())?)
}

/// Asks the running proxy for its sockets; `None` if none runs.
async fn ask_for_sockets(control: &Path) -> anyhow::Result<Option<(StdStream, Vec<OwnedFd>)>> {
    let path = control.to_owned();
    let asked = spawn_blocking(move || {
        let question = serde_json::to_string(&ControlQuestion::TakeOver)?;
        let mut channel = begin_ask(&path, &question, PASS)?;
        match receive_files(&channel)? {
            Ok(files) => Ok((channel, files)),
            Err(first) => {
                let mut line = vec![first];
                channel.read_to_end(&mut line)?;
                let reason = match serde_json::from_slice(&line) {
                    Ok(ControlAnswer::Failed(reason)) => reason,
                    _ => {
                        "cannot parse its answer; does it run another version of wharf?".to_owned()
                    }
                };
                Err(io::Error::other(reason))
            }
        }
    });
    match asked.await? {
        Ok(asked) => Ok(Some(asked)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            info!(control = %control.display(), "no running proxy to take over from");
            Ok(None)
        }
        Err(error) => Err(anyhow!(
            "--take-over: the running proxy at {} does not hand over: {error}",
            control.display()
        )),
    }
}

/// Adopts the sockets of the proxy at the other end of a channel, which serves them until the
/// hand-over.
async fn adopt(
    addresses: Addresses<'_>,
    channel: StdStream,
    sockets: Vec<OwnedFd>,
) -> anyhow::Result<Sockets> {
    channel.set_nonblocking(true)?;
    let mut predecessor = Predecessor::greet(UnixStream::from_std(channel)?)
        .await
        .context("the running proxy does not hand over")?;
    match assign(addresses, predecessor.hello(), sockets) {
        Ok(sockets) => Ok(Sockets { predecessor: Some(predecessor), ..sockets }),
        Err(error) => {
            predecessor.fail(&format!("{error:#}")).await;
            Err(error)
        }
    }
}

fn assign(
    addresses: Addresses<'_>,
    hello: &Hello,
    sockets: Vec<OwnedFd>,
) -> anyhow::Result<Sockets> {
    let Addresses { listen, control, http } = addresses;
    ensure!(
        sockets.len() == hello.sockets.len(),
        "the running proxy announces {} sockets, and passes {}",
        hello.sockets.len(),
        sockets.len()
    );
    let (mut runtime, mut questions, mut admin, mut remove) = (None, None, None, [true; 2]);
    for (passed, socket) in hello.sockets.iter().zip(sockets) {
        match passed {
            PassedSocket::Runtime(file) => {
                ensure!(
                    file.path == listen,
                    "the running proxy serves {}, and --listen is {}: both must be the same",
                    file.path.display(),
                    listen.display()
                );
                remove[0] = file.remove;
                runtime = Some(adopt_listener(socket, file)?);
            }
            PassedSocket::Control(file) if file.path == control => {
                remove[1] = file.remove;
                questions = Some(adopt_listener(socket, file)?);
            }
            PassedSocket::Http { address } if http == Some(address) => {
                admin = Some(TcpListener::from(socket));
            }
            // The successor's flags may set another address.
            PassedSocket::Control(_) | PassedSocket::Http { .. } => {}
        }
    }
    let runtime = runtime.context("the running proxy does not pass the socket of --listen")?;
    let (control, http) = (questions, admin);
    Ok(Sockets { runtime, control, http, predecessor: None, is_announced: false, remove })
}

fn adopt_listener(socket: OwnedFd, passed: &PassedFile) -> Result<Listener, ListenError> {
    // The predecessor owns the file until the hand-over.
    let file = SocketFile { device: passed.device, inode: passed.inode, remove: false };
    Listener::adopt(socket, &passed.path, file, &ListenOptions::default())
}

/// A socket in the announcement to a successor.
pub(super) fn passed(path: &Path, handle: &ListenerHandle) -> PassedFile {
    let SocketFile { device, inode, remove } = handle.file();
    PassedFile { path: path.to_owned(), device, inode, remove }
}
