//! Detects servers that hang: a process may stop answering while its connection stays open.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

/// The time for which a server has answered none of the requests sent to it. Clones share it.
///
/// It begins with the first unanswered request and ends with the next answer to any request, or
/// with the connection: a server that is gone is not silent. A request that its caller gives up
/// does not end it.
#[derive(Clone, Debug, Default)]
pub struct Silence(Arc<watch::Sender<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Requests whose callers wait.
    waiting: usize,
    since: Option<Instant>,
}

impl Silence {
    /// When the silence began; `None` if the server has answered or was not asked.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        self.0.borrow().since
    }

    /// Waits until the server has been silent for `patience`, and returns when the silence began.
    /// Sets no timer while no request is unanswered.
    pub async fn lasts(&self, time: Duration) -> Instant {
        let mut states = self.0.subscribe();
        loop {
            // The sender is a field of `self`, so the channel stays open.
            let Ok(state) = states.wait_for(|state| state.since.is_some()).await.map(|it| *it)
            else {
                return std::future::pending().await;
            };
            let Some(since) = state.since else { continue };
            tokio::select! {
                () = sleep_until(since + time) => return since,
                _ = states.wait_for(|state| state.since != Some(since)) => {}
            }
        }
    }

    /// Records that a request is sent now.
    pub(crate) fn sent(&self) -> Sent {
        self.0.send_modify(|state| {
            state.waiting += 1;
            state.since.get_or_insert_with(Instant::now);
        });
        Sent(self.clone())
    }
}

/// A request that was sent. Dropping it without an answer means that its caller gave up.
pub(crate) struct Sent(Silence);

impl Sent {
    /// Records that the server answered or closed the connection.
    pub(crate) fn ended(self) {
        self.0.0.send_modify(|state| state.since = (state.waiting > 1).then(Instant::now));
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_silence_lasts_from_the_first_request_until_an_answer() {
        let silence = Silence::default();
        assert!(timeout(SECOND * 100, silence.lasts(SECOND)).await.is_err(), "nothing was asked");
        let (begin, first) = (Instant::now(), silence.sent());
        advance(SECOND).await;
        let second = silence.sent();
        assert_eq!(silence.since(), Some(begin));
        // One that is given up is no answer.
        drop(first);
        assert_eq!(silence.lasts(SECOND * 3).await, begin);
        second.ended();
        assert_eq!(silence.since(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_any_request_begins_the_time_anew() {
        let silence = Silence::default();
        let long = silence.sent();
        for _ in 0..3 {
            advance(SECOND).await;
            silence.sent().ended();
            assert_eq!(silence.since(), Some(Instant::now()));
        }
        let since = Instant::now();
        assert_eq!(silence.lasts(SECOND).await, since);
        assert_eq!(since.elapsed(), SECOND);
        long.ended();
        assert_eq!(silence.since(), None);
    }
}
