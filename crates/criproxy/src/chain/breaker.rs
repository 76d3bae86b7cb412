//! Leaves out servers that hang until they answer again.
//!
//! A server that hangs would delay every call at each of its points. So after the first timeout it
//! is left out: its failure policy is applied at once. Nothing is polled: a question of a later
//! call, at most one each second, becomes a probe in the background, and its call waits only for a
//! moment. A server that was restarted is asked at once.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The time between two probes.
const PAUSE: Duration = Duration::from_secs(1);

/// Decides whether a server is asked.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<Option<Open>>);

/// The server is left out.
#[derive(Debug)]
struct Open {
    since: Instant,
    /// The failure of the question that hung.
    failure: String,
    /// The connection of that question.
    connection: Option<u64>,
    last_probe: Instant,
    is_probing: bool,
}

/// The decision about a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is sent.
    Ask,
    /// It is sent as a probe, and its call waits only for a moment.
    Probe,
    /// It is not sent, for this reason.
    LeaveOut(String),
}

impl Breaker {
    /// Decides about a question on this connection.
    pub(super) fn admit(&self, connection: Option<u64>) -> Admission {
        let mut state = self.lock();
        let Some(open) = &mut *state else { return Admission::Ask };
        if connection.is_some() && connection != open.connection {
            // The server was restarted.
            *state = None;
            return Admission::Ask;
        }
        if open.is_probing || open.last_probe.elapsed() < PAUSE {
            return Admission::LeaveOut(open.to_string());
        }
        open.is_probing = true;
        open.last_probe = Instant::now();
        Admission::Probe
    }

    /// Leaves the server out from now on. Returns true if it was not left out before.
    pub(super) fn open(&self, failure: &str, connection: Option<u64>) -> bool {
        let mut state = self.lock();
        if state.is_some() {
            return false;
        }
        let now = Instant::now();
        *state = Some(Open {
            since: now,
            failure: failure.to_owned(),
            connection,
            last_probe: now,
            is_probing: false,
        });
        true
    }

    /// The end of a probe: whether the server answered, be it with an error.
    pub(super) fn probed(&self, answered: bool) {
        let mut state = self.lock();
        if answered {
            *state = None;
        } else if let Some(open) = &mut *state {
            open.is_probing = false;
        }
    }

    /// Why the server is left out, if it is.
    pub(super) fn reason(&self) -> Option<String> {
        self.lock().as_ref().map(ToString::to_string)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Display for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let since = self.since.elapsed().as_secs();
        let Open { failure, .. } = self;
        write!(f, "left out for {since} s, until it answers again: it hung, {failure}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_left_out(breaker: &Breaker, connection: Option<u64>) -> bool {
        matches!(breaker.admit(connection), Admission::LeaveOut(_))
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_a_second_and_no_more() {
        let breaker = Breaker::default();
        assert_eq!(breaker.admit(Some(1)), Admission::Ask);
        assert!(breaker.open("no answer", Some(1)));
        assert!(!breaker.open("another one", Some(1)));
        assert!(is_left_out(&breaker, Some(1)));
        tokio::time::advance(PAUSE).await;
        assert_eq!(breaker.admit(Some(1)), Admission::Probe);
        assert!(is_left_out(&breaker, Some(1)));
        tokio::time::advance(PAUSE * 5).await;
        assert!(is_left_out(&breaker, Some(1)), "the probe still waits");
        breaker.probed(false);
        assert_eq!(breaker.admit(Some(1)), Admission::Probe);
        let reason = breaker.reason().unwrap();
        assert_eq!(reason, "left out for 6 s, until it answers again: it hung, no answer");
        breaker.probed(true);
        assert_eq!(breaker.admit(Some(1)), Admission::Ask);
        assert_eq!(breaker.reason(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_started_again_is_asked() {
        let breaker = Breaker::default();
        breaker.open("no answer", Some(1));
        assert!(is_left_out(&breaker, None), "it is down");
        assert_eq!(breaker.admit(Some(2)), Admission::Ask);
        breaker.open("never connected", None);
        assert!(is_left_out(&breaker, None));
        assert_eq!(breaker.admit(Some(3)), Admission::Ask);
    }
}
