//! The task that gives copies blocks of their own while the driver serves.

use std::{sync::Arc, time::Duration};

use tokio::{select, task::spawn_blocking, time::Instant, time::sleep_until};
use tokio_util::sync::CancellationToken;

use crate::pool::{Pool, UnshareStep};

/// Bytes that are moved in a second at most. A local disk writes 500 MiB/s and more: half of that is left to volumes in use.
const RATE: u64 = 256 << 20;

/// Unshares the copies of a pool until `stop`, and wakes only when there may be one.
pub async fn keep_unshared(pool: Arc<Pool>, stop: CancellationToken) {
    loop {
        let begun = Instant::now();
        let own = pool.clone();
        let step = spawn_blocking(move || own.unshare_step()).await;
        let Ok(step) = step else {
            tracing::error!("failed to unshare copies, the next start goes on");
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
