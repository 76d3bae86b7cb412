//! The socket of a scripted server.
//!
//! It is bound like in Go programs, so a killed server leaves its file. Connections are relayed to
//! the real server in a folder of its own, or mistreated, as the script says.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use wharf_uds::{ListenOptions, Listener, Routes};

/// Treatment of connections to a scripted server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Relays them.
    #[default]
    Grpc,
    /// Accepts them and sends nothing.
    Mute,
    /// Answers in another protocol.
    Garbage,
    /// Relays them, and closes the connection at the first call.
    HangUp,
}

/// Serves until it is dropped, which looks like a crash from outside: the file stays.
pub(crate) struct Front {
    path: PathBuf,
    transport: watch::Sender<Transport>,
    tasks: JoinSet<()>,
    _folder: TempDir,
}

impl Front {
    /// Serves on the path, replacing an existing socket.
    pub(crate) fn serve(path: &Path, transport: Transport, routes: Routes) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let behind = folder.path().join("grpc.sock");
        let listener = Listener::bind(&behind, &ListenOptions::default()).expect("a free path");
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{path:?}: {error}"),
            _ => {}
        }
        let socket = UnixListener::bind(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let (transport, treatment) = watch::channel(transport);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // Ends with its task only.
            let _ = listener.serve(routes, Duration::ZERO, CancellationToken::new()).await;
        });
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                let transport = *treatment.borrow();
                connections.spawn(treat(stream, transport, behind.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { path: path.to_owned(), transport, tasks, _folder: folder }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the treatment of future connections.
    pub(crate) fn treat_as(&self, transport: Transport) {
        self.transport.send_replace(transport);
    }

    /// Ends without closing properly: the file stays.
    pub(crate) async fn kill(mut self) {
        self.tasks.shutdown().await;
    }

    /// Removes the file and ends.
    pub(crate) async fn stop(self) {
        std::fs::remove_file(&self.path).expect("the socket is there until it is stopped");
        self.kill().await;
    }
}

async fn treat(stream: UnixStream, transport: Transport, behind: PathBuf) {
    // Errors of a connection are caused by the script or the peer.
    let _ = match transport {
        Transport::Grpc => carry(stream, &behind).await,
        Transport::Mute => mute(stream).await,
        Transport::Garbage => garbage(stream).await,
        Transport::HangUp => hang_up(stream).await,
    };
}

async fn carry(mut stream: UnixStream, behind: &Path) -> io::Result<()> {
    let mut server = UnixStream::connect(behind).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut server).await?;
    Ok(())
}

async fn mute(mut stream: UnixStream) -> io::Result<()> {
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok(())
}

async fn garbage(mut stream: UnixStream) -> io::Result<()> {
    stream.write_all(b"HTTP/1.1 418 I'm a teapot\r\n\r\nwhat did you expect?\r\n").await?;
    mute(stream).await
}

const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const PREFACE: usize = 24;
const HEADERS: u8 = 1;

async fn hang_up(mut stream: UnixStream) -> io::Result<()> {
    stream.write_all(&SETTINGS).await?;
    stream.read_exact(&mut [0; PREFACE]).await?;
    loop {
        let mut head = [0; SETTINGS.len()];
        stream.read_exact(&mut head).await?;
        let [high, middle, low, kind, ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = (&mut stream).take(length.into());
        tokio::io::copy(&mut payload, &mut tokio::io::sink()).await?;
        if kind == HEADERS {
            return Ok(());
        }
    }
}
