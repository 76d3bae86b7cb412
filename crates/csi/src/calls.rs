use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{runtime::Handle, sync::watch, time::Instant};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

/// Tracks calls to a driver that continue after their callers have given up.
///
/// A driver need not notice that a caller has gone, so an abandoned call may still change storage.
/// [`Calls::finished`] waits until no call is under way.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    under_way: TaskTracker,
    cut: CancellationToken,
    /// Calls are sent only before this moment.
    pub(crate) until: Option<watch::Receiver<Instant>>,
}

impl Calls {
    /// Allows calls only before `until`; later calls wait until it is moved. A leader that was
    /// frozen and runs again must not call the driver once another replica may lead, and its calls
    /// would run before its timers.
    pub fn only_until(until: watch::Receiver<Instant>) -> Self {
        Self { until: Some(until), ..Self::default() }
    }

    /// Waits until no call is under way, abandoned ones included.
    pub async fn finished(&self) {
        self.under_way.close();
        self.under_way.wait().await;
        self.under_way.reopen();
    }

    /// When the guard is dropped, aborts all abandoned calls; from then on a call ends with its
    /// caller.
    pub fn cut_on_drop(&self) -> DropGuard {
        self.cut.clone().drop_guard()
    }

    /// Wraps a call so that it continues after its caller drops it.
    pub(crate) fn outlive<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Outliving<T> {
        let token = self.under_way.token();
        Outliving { call: Some(Box::pin(call)), calls: self.clone(), _token: token }
    }
}

/// A call that continues when this future is dropped.
pub(crate) struct Outliving<T: Send + 'static> {
    /// `None` after the call has ended.
    call: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    calls: Calls,
    /// Counts this call as under way.
    _token: TaskTrackerToken,
}

impl<T: Send + 'static> Future for Outliving<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(call) = &mut self.call else { return Poll::Pending };
        let poll = call.as_mut().poll(context);
        if poll.is_ready() {
            self.call = None;
        }
        poll
    }
}

impl<T: Send + 'static> Drop for Outliving<T> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let Calls { under_way, cut, .. } = &self.calls;
        // Without a runtime the process is ending, and the connection with it.
        if let (false, Ok(runtime)) = (cut.is_cancelled(), Handle::try_current()) {
            under_way.spawn_on(cut.clone().run_until_cancelled_owned(call), &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        sync::oneshot,
        time::{Instant, sleep, timeout},
    };

    use super::*;

    const CALL: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_caller_is_gone_is_under_way_until_it_ends() {
        let calls = Calls::default();
        let began = Instant::now();
        let (ended, told) = oneshot::channel();
        let call = calls.outlive(async {
            sleep(CALL).await;
            ended.send(()).unwrap();
        });
        assert!(timeout(CALL / 3, call).await.is_err());
        calls.finished().await;
        assert_eq!(began.elapsed(), CALL);
        told.await.unwrap();
        calls.finished().await;
        assert_eq!(calls.outlive(async { 5 }).await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_end_with_their_callers_once_they_are_cut() {
        let calls = Calls::default();
        let guard = calls.cut_on_drop();
        let (held, dropped) = oneshot::channel::<()>();
        let call = calls.outlive(async {
            sleep(CALL).await;
            drop(held);
        });
        assert!(timeout(CALL / 3, call).await.is_err());
        let began = Instant::now();
        drop(guard);
        dropped.await.unwrap_err();
        calls.finished().await;
        let late = calls.outlive(sleep(CALL));
        drop(late);
        calls.finished().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
