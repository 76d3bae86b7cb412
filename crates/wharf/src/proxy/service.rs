//! Work next to the calls of a proxy: reports to the service manager, messages of the predecessor,
//! requests for a successor.

use std::{path::PathBuf, time::Duration};

use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wharf_criproxy::Finishing;
use wharf_uds::{ListenerHandle, probe};

use super::{
    notify::{Notifier, watchdog},
    succession::{Requests, Succession},
};

/// Time that a predecessor may take to end after its drain.
const LEAVE: Duration = Duration::from_secs(5);

/// The work next to the calls of a proxy.
pub(super) struct Service {
    pub(super) notifier: Notifier,
    pub(super) listen: PathBuf,
    pub(super) drain: Duration,
    pub(super) stop: CancellationToken,
}

impl Service {
    /// Reads messages of the predecessor, serves requests for a successor, and feeds the watchdog,
    /// until `stop`. Stops the proxy once its successor asks it to leave or has ended.
    pub(super) async fn supervise(
        self,
        succession: Succession,
        requests: Requests,
        finishing: Option<Finishing>,
    ) -> anyhow::Result<()> {
        let leave = self.stop.child_token();
        let replaced = self.stop.child_token();
        let sockets = [succession.runtime_socket.clone(), succession.control_socket.clone()];
        tokio::try_join!(
            self.follow(finishing, leave.clone(), sockets),
            async {
                let followed = succession.serve(&self.notifier, requests, self.stop.clone()).await;
                replaced.cancel();
                let Some(followed) = followed else {
                    self.notifier.stopping();
                    return Ok(());
                };
                // At most one predecessor at a time finishes its calls.
                leave.cancel();
                let followed = self.stop.run_until_cancelled(followed.follow()).await;
                if followed.is_some() {
                    info!("ending streams, waiting up to --drain for calls");
                }
                self.stop.cancel();
                Ok(())
            },
            async {
                replaced.run_until_cancelled(self.feed_watchdog()).await;
                Ok(())
            },
        )?;
        Ok(())
    }

    /// Reads messages of the predecessor until it has ended.
    async fn follow(
        &self,
        finishing: Option<Finishing>,
        leave: CancellationToken,
        sockets: [ListenerHandle; 2],
    ) -> anyhow::Result<()> {
        let Some(finishing) = finishing else { return Ok(()) };
        let mut followed = std::pin::pin!(finishing.follow(leave));
        let ended = tokio::select! {
            ended = followed.as_mut() => ended,
            () = self.stop.cancelled() => {
                // The predecessor knows the result, and sees when this process ends.
                timeout(self.drain + LEAVE, followed).await.unwrap_or(Ok(()))
            }
        };
        if ended.is_err() {
            // The predecessor continues to serve on the same sockets.
            sockets.iter().for_each(ListenerHandle::release);
            self.stop.cancel();
        }
        Ok(ended?)
    }

    /// Feeds the service manager's watchdog while the proxy answers a connection to its own socket.
    async fn feed_watchdog(&self) {
        let Some(period) = watchdog() else { return };
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match probe(&self.listen, period / 2).await {
                Ok(()) => self.notifier.alive(),
                Err(error) => warn!(%error, "failed to connect to own socket, watchdog not fed"),
            }
        }
    }
}
