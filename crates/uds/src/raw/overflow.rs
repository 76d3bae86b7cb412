//! Further connections to a server, for when all streams of the held connection are taken.
//!
//! A server limits the streams of a connection. Long calls, such as PullImage and
//! GetContainerEvents, must not block all other calls once they hold these streams.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::time::Instant;

use crate::{
    connection::{Connection, Dialled, Sender},
    link::Link,
};

/// The most further connections. With all of them full, calls wait for a stream of the held
/// connection.
const MOST: usize = 16;
/// After a failed dial no other is tried for this long: callers must not wait for one failure each.
const REST: Duration = Duration::from_secs(1);

pub(super) type Shared = Arc<Connection<SendRequest<Bytes>>>;

/// A call holds its connection until it ends. The number of references to a connection is therefore
/// the number of its calls, plus those that keep the connection itself.
#[derive(Default)]
pub(super) struct Overflow {
    connections: Mutex<Vec<Shared>>,
    /// Locked while a caller dials, so that other callers wait and use its connection. Holds the
    /// time of the last failure.
    dialling: tokio::sync::Mutex<Option<Instant>>,
}

impl Overflow {
    /// Returns a connection with a free stream: `held`, or a further one. Without any, returns
    /// `held`, on which calls wait.
    pub(super) async fn with_room(
        &self,
        held: Shared,
        link: &Link<SendRequest<Bytes>>,
        timeout: Duration,
    ) -> Shared {
        if has_room(&held, 2) {
            self.drop_unused();
            return held;
        }
        if let Some(found) = self.find() {
            return found;
        }
        let mut failed = self.dialling.lock().await;
        if let Some(found) = self.find() {
            return found;
        }
        let is_resting = failed.is_some_and(|at| at.elapsed() < REST);
        if is_resting || self.connections().len() >= MOST {
            return held;
        }
        let Ok(dialled) = Dialled::dial(&link.path, timeout, link.peer.as_ref()).await else {
            *failed = Some(Instant::now());
            return held;
        };
        let connection = Arc::new(dialled.start(held.generation, || {}));
        self.connections().push(connection.clone());
        connection
    }

    fn find(&self) -> Option<Shared> {
        let mut connections = self.connections();
        connections.retain(|connection| !connection.sender.is_closed());
        connections.iter().find(|connection| has_room(connection, 1)).cloned()
    }

    /// Closes connections that carry no call.
    fn drop_unused(&self) {
        let mut connections = self.connections();
        if !connections.is_empty() {
            connections.retain(|connection| calls(connection, 1) > 0);
        }
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Shared>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls of a connection that `keepers` other references keep.
fn calls(connection: &Shared, keepers: usize) -> usize {
    Arc::strong_count(connection).saturating_sub(keepers)
}

fn has_room(connection: &Shared, keepers: usize) -> bool {
    calls(connection, keepers) < connection.sender.current_max_send_streams()
}
