//! Checks whether the process behind a hook server's socket may be asked.
//!
//! A question holds the environment of a container, and an answer changes it: a server is trusted
//! as much as a file of the folder. Each new connection is checked, because another process may
//! listen by then.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use wharf_uds::PeerCredentials;

use crate::config::{Server, trust_socket};

/// Checks each new connection to a socket, and keeps the result of the last check.
#[derive(Debug)]
pub(super) struct PeerGuard {
    name: String,
    endpoint: PathBuf,
    uid: Option<u32>,
    refusal: Mutex<Option<String>>,
}

impl PeerGuard {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            name: server.name.clone(),
            endpoint: server.endpoint.clone(),
            uid: server.uid,
            refusal: Mutex::default(),
        }
    }

    /// Checks the process at the other end of a new connection.
    ///
    /// # Errors
    /// The reason why it is not trusted, and the remedy.
    pub(super) fn check(&self, peer: PeerCredentials) -> Result<(), String> {
        let checked = trust_socket(&self.endpoint, peer.uid, self.uid);
        let refusal = checked.as_ref().err().cloned();
        let (server, endpoint) = (&self.name, self.endpoint.display());
        let known = {
            let mut known = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *known, refusal.clone())
        };
        match &refusal {
            Some(error) if known != refusal => {
                tracing::warn!(server, %endpoint, error, "refusing connection to untrusted hook server");
            }
            None if known.is_some() => tracing::info!(server, %endpoint, "hook server is trusted"),
            _ => {}
        }
        checked
    }

    /// The reason why the last connection was refused, if it was.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
