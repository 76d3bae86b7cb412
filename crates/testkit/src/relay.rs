//! A connection from a replica to the API server, or to a driver, that can be cut: it then
//! transfers nothing, and closes nothing.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
};

/// Relays connections to the API server until it is dropped.
pub struct Relay {
    address: SocketAddr,
    there: watch::Sender<bool>,
    back: watch::Sender<bool>,
    _carrying: JoinSet<()>,
}

impl Relay {
    /// Relays to `server`, with `source` as the address of its connections.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn open(server: SocketAddr, source: Ipv4Addr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let [there, back] = [true; 2].map(watch::Sender::new);
        let ways = [there.subscribe(), back.subscribe()];
        let mut carrying = JoinSet::new();
        carrying.spawn(serve(listener, server, source, ways));
        Ok(Self { address, there, back, _carrying: carrying })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds back all data from now on, in both directions.
    pub fn cut(&self) {
        self.there.send_replace(false);
        self.cut_back();
    }

    /// Holds back answers from now on; requests still arrive.
    pub fn cut_back(&self) {
        self.back.send_replace(false);
    }

    /// Transfers everything again, beginning with the data held back, like TCP after an outage.
    pub fn mend(&self) {
        self.there.send_replace(true);
        self.back.send_replace(true);
    }
}

/// Relays connections to the socket of a driver. While it is cut, the driver accepts connections
/// and answers nothing, like a process that hangs.
pub struct SocketRelay {
    open: watch::Sender<bool>,
    _carrying: JoinSet<()>,
}

impl SocketRelay {
    /// Relays from the socket `path`, which it makes, to the socket `driver`.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn open(path: &Path, driver: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let open = watch::Sender::new(true);
        let mut carrying = JoinSet::new();
        carrying.spawn(serve_socket(listener, driver.to_owned(), open.subscribe()));
        Ok(Self { open, _carrying: carrying })
    }

    /// Holds back all data from now on, in both directions.
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    /// Transfers everything again, beginning with the data held back.
    pub fn mend(&self) {
        self.open.send_replace(true);
    }
}

async fn serve_socket(listener: UnixListener, driver: PathBuf, open: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (driver, open) = (driver.clone(), open.clone());
        connections.spawn(async move {
            let Ok(driver) = UnixStream::connect(driver).await else { return };
            let (from_client, to_client) = client.into_split();
            let (from_driver, to_driver) = driver.into_split();
            let requests = carry(from_client, to_driver, open.clone());
            let _ = tokio::join!(requests, carry(from_driver, to_client, open));
        });
    }
}

async fn serve(
    listener: TcpListener,
    server: SocketAddr,
    source: Ipv4Addr,
    [there, back]: [watch::Receiver<bool>; 2],
) {
    let mut connections = JoinSet::new();
    // A client whose connection cannot be accepted tries again.
    while let Ok((client, _)) = listener.accept().await {
        let (there, back) = (there.clone(), back.clone());
        connections.spawn(async move {
            // A client that cannot be relayed sees its connection end, like without a relay.
            let Ok(server) = connect(server, source).await else { return };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            let requests = carry(from_client, to_server, there);
            let _ = tokio::join!(requests, carry(from_server, to_client, back));
        });
    }
}

async fn connect(server: SocketAddr, source: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((source, 0).into())?;
    socket.connect(server).await
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut whole: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        // The end of a stream is held back, too.
        if whole.wait_for(|whole| *whole).await.is_err() {
            return Ok(());
        }
        match count {
            0 => return to.shutdown().await,
            count => to.write_all(&buffer[..count]).await?,
        }
    }
}
