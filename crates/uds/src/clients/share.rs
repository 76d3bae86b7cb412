//! The memory that calls of one process take: one process must leave room for the calls of others.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use super::{Account, ClientCall};
use crate::limits::CLIENT_REQUEST_HEADERS;

/// An episode of refusals ends after this time without one. Each episode is logged once.
const EPISODE: Duration = Duration::from_secs(60);

/// Bytes that calls of a process take together.
#[derive(Debug, Default)]
pub(super) struct Share {
    taken: usize,
    last_refusal: Option<Instant>,
}

/// The result of [`Share::take`] if the bytes do not fit.
struct Full {
    begins_episode: bool,
}

impl Share {
    fn take(&mut self, bytes: usize, limit: usize) -> Result<(), Full> {
        let taken = self.taken.saturating_add(bytes);
        if taken <= limit {
            self.taken = taken;
            return Ok(());
        }
        let now = Instant::now();
        let last = self.last_refusal.replace(now);
        Err(Full { begins_episode: last.is_none_or(|last| now - last > EPISODE) })
    }

    pub(super) fn release(&mut self, bytes: usize) {
        self.taken -= bytes;
    }
}

impl ClientCall {
    /// Takes `bytes` for the header list, until the call is dropped.
    ///
    /// # Errors
    /// If the header lists of the process take more than [`CLIENT_REQUEST_HEADERS`] together.
    pub(crate) fn take_headers(&mut self, bytes: usize) -> Result<(), Status> {
        let limit = CLIENT_REQUEST_HEADERS;
        let taken = self.account.state().headers.take(bytes, limit);
        taken.map_err(|full| self.account.refuse("header lists", limit, &full))?;
        self.header_bytes += bytes;
        Ok(())
    }

    /// Takes `bytes` for a part of the message, until the call is dropped.
    ///
    /// # Errors
    /// If the messages of the process take more than `limit` together.
    pub(crate) fn take_message(&mut self, bytes: usize, limit: usize) -> Result<(), Status> {
        let taken = self.account.state().messages.take(bytes, limit);
        taken.map_err(|full| self.account.refuse("messages", limit, &full))?;
        self.message_bytes += bytes;
        Ok(())
    }
}

impl Account {
    fn refuse(&self, kind: &str, limit: usize, full: &Full) -> Status {
        if full.begins_episode {
            tracing::warn!(pid = self.pid, kind, limit, "refusing calls of a client");
        }
        Status::resource_exhausted(format!(
            "the {kind} of this process's calls under way take {} MiB, the most that one process may have: try again",
            limit >> 20
        ))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::{super::Clients, *};

    #[test]
    fn header_lists_of_a_process_leave_room_for_those_of_others() {
        let clients = Clients::default();
        let begin = |pid| clients.connect(Some(pid)).begin().unwrap();
        let mut first = begin(7);
        first.take_headers(CLIENT_REQUEST_HEADERS - 1).unwrap();
        let refused = begin(7).take_headers(2).unwrap_err();
        assert!(refused.message().contains("take 1 MiB"), "{refused}");
        begin(8).take_headers(CLIENT_REQUEST_HEADERS).unwrap();
        drop(first);
        begin(7).take_headers(CLIENT_REQUEST_HEADERS).unwrap();
    }

    #[test]
    fn messages_of_a_process_leave_room_for_those_of_others() {
        const LIMIT: usize = 32 << 20;
        let clients = Clients::default();
        let begin = |pid| clients.connect(Some(pid)).begin().unwrap();
        let mut first = begin(7);
        first.take_message(LIMIT - 1, LIMIT).unwrap();
        first.take_message(1, LIMIT).unwrap();
        let refused = begin(7).take_message(1, LIMIT).unwrap_err();
        assert!(refused.message().contains("take 32 MiB"), "{refused}");
        begin(8).take_message(LIMIT, LIMIT).unwrap();
        drop(first);
        begin(7).take_message(LIMIT, LIMIT).unwrap();
    }

    #[test]
    fn clients_without_a_pid_share_an_account() {
        let clients = Clients::default();
        let mut first = clients.connect(None).begin().unwrap();
        first.take_headers(CLIENT_REQUEST_HEADERS).unwrap();
        assert!(clients.connect(Some(0)).begin().unwrap().take_headers(1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_episode_of_refusals_is_logged_once() {
        let mut share = Share::default();
        let mut begins = || share.take(2, 1).unwrap_err().begins_episode;
        assert!(begins());
        advance(EPISODE).await;
        assert!(!begins());
        advance(EPISODE + Duration::from_secs(1)).await;
        assert!(begins());
    }
}
