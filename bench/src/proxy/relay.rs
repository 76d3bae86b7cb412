//! The least that can stand between two sockets: bytes, copied as they come.

use std::path::Path;

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// As much as a socket holds at a time.
const BUFFER: usize = 256 << 10;

/// Carries all connections at `socket` to `to` until it is killed.
pub(super) async fn serve(socket: &Path, to: &Path) -> Result<()> {
    let listener = UnixListener::bind(socket);
    let listener = listener.with_context(|| socket.display().to_string())?;
    let mut connections = JoinSet::new();
    loop {
        let (mut caller, _) = listener.accept().await?;
        let mut server = UnixStream::connect(to).await?;
        connections.spawn(async move {
            // Its end is seen by both sides.
            let _ = copy_bidirectional_with_sizes(&mut caller, &mut server, BUFFER, BUFFER).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
