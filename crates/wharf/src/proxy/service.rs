//! A proxy as a service: its state for the service manager, its predecessor and its successor.

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

/// How long a predecessor that was asked to leave may take beyond its drain.
const LEAVE: Duration = Duration::from_secs(5);

/// What goes on while a proxy serves.
pub(super) struct Service {
    pub(super) notifier: Notifier,
    pub(super) listen: PathBuf,
    pub(super) drain: Duration,
    pub(super) stop: CancellationToken,
}

impl Service {
    /// Follows the predecessor, serves requests for a successor, and feeds the watchdog, until `stop`. Stops the proxy once
    /// its successor wants it to leave, or is gone.
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
                // At most one process that finishes its calls.
                leave.cancel();
                let followed = self.stop.run_until_cancelled(followed.follow()).await;
                if followed.is_some() {
                    info!("leaving: streams end, and calls in flight have --drain to finish");
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

    /// Takes what the predecessor has to say until it is gone.
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
                // It has heard of it, and will hear that this process is gone.
                timeout(self.drain + LEAVE, followed).await.unwrap_or(Ok(()))
            }
        };
        if ended.is_err() {
            // The predecessor serves on, on the same sockets.
            sockets.iter().for_each(ListenerHandle::release);
            self.stop.cancel();
        }
        Ok(ended?)
    }

    /// Tells the service manager that the proxy serves, for as long as whoever connects is answered.
    async fn feed_watchdog(&self) {
        let Some(period) = watchdog() else { return };
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match probe(&self.listen, period / 2).await {
                Ok(()) => self.notifier.alive(),
                Err(error) => warn!(%error, "not serving: the watchdog is not fed"),
            }
        }
    }
}
