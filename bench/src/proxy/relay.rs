//! The smallest process between two sockets: it copies bytes.

use std::path::Path;

use anyhow::{Context, Result};
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{UnixListener, UnixStream},
    task::JoinSet,
};

/// As much as a socket buffers.
const BUFFER: usize = 256 << 10;

/// Relays all connections at `socket` to `to` until the process is killed.
pub(super) async fn serve(socket: &Path, to: &Path) -> Result<()> {
    let listener = UnixListener::bind(socket);
    let listener = listener.with_context(|| socket.display().to_string())?;
    let mut connections = JoinSet::new();
    loop {
        let (mut caller, _) = listener.accept().await?;
        let mut server = UnixStream::connect(to).await?;
        connections.spawn(async move {
            // Both sides see its end.
            let _ = copy_bidirectional_with_sizes(&mut caller, &mut server, BUFFER, BUFFER).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
