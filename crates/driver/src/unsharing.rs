//! The task that unshares copies in the background.

use std::{sync::Arc, time::Duration};

use tokio::{
    select,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::pool::{Pool, UnshareStep};

/// Maximum bytes moved per second. A local disk writes at least 500 MiB/s: half of that is left to
/// volumes in use.
const RATE: u64 = 256 << 20;

/// Unshares the copies of a pool until `stop`. Wakes only when there may be work.
pub async fn keep_unshared(pool: Arc<Pool>, stop: CancellationToken) {
    loop {
        let begun = Instant::now();
        let own = pool.clone();
        let step = spawn_blocking(move || own.unshare_step()).await;
        let Ok(step) = step else {
            tracing::error!("unsharing task panicked, resuming at next start");
            return;
        };
        match step {
            UnshareStep::Moved(bytes) => {
                let pause = Duration::from_secs(1).mul_f64(bytes as f64 / RATE as f64);
                select! {
                    () = stop.cancelled() => return,
                    () = sleep_until(begun + pause) => {}
                }
            }
            UnshareStep::Wait(pause) => select! {
                () = stop.cancelled() => return,
                () = pool.unsharing_wanted() => {}
                () = sleep_until(begun + pause) => {}
            },
            UnshareStep::Idle => select! {
                () = stop.cancelled() => return,
                () = pool.unsharing_wanted() => {}
            },
        }
    }
}
