//! Pools that are closed, each by a thread of its own: a disk that hangs keeps nobody waiting for longer than a few seconds.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{Leaving, Pools, ServedPool, SlotState};
use crate::{config::PoolConfig, pool_image};

/// How long the tasks of a pool may take to end. A pool that is held for longer is opened by a later attempt.
pub(super) const CLOSE: Duration = Duration::from_secs(5);

/// A pool that nobody gets at any more.
struct Closing {
    name: String,
    served: Option<Arc<ServedPool>>,
    /// The folder whose image is unmounted.
    image_in: Option<PathBuf>,
}

impl Pools {
    /// Closes all pools at the end of the driver, and then lets another driver have its folder. Waits no longer than 5 s for
    /// disks that hang. Nothing can be called after this.
    pub fn close(&self) {
        let slots = std::mem::take(&mut *self.slots_mut());
        let closing = slots.into_iter().filter_map(|(name, slot)| {
            let served = slot.served().cloned()?;
            Some(Closing { name, served: Some(served), image_in: None })
        });
        close_all(closing.collect());
        self.state_dir.release();
    }

    /// Closes pools that are to be closed and that nobody uses. Returns what is to be opened in their place.
    pub(super) fn close_leaving(&self) -> Vec<PoolConfig> {
        let (mut moved, mut closing) = (Vec::new(), Vec::new());
        self.slots_mut().retain(|name, slot| {
            let Some(leaving) = &slot.leaving else { return true };
            let served = match &slot.state {
                SlotState::Absent(_) => None,
                SlotState::Served(served) if is_idle(served) => {
                    tracing::info!(pool = name, "pool closed, no longer configured");
                    Some(served.clone())
                }
                SlotState::Served(served) => {
                    served.pool.change_settings(|settings| settings.drain = true);
                    return true;
                }
            };
            if let Leaving::Moving(config) = leaving {
                moved.push(PoolConfig::clone(config));
            }
            // The thread that opens a pool unmounts the image itself.
            if served.is_some() || !self.abandon_opening(&slot.config) {
                let image_in = Some(slot.config.folder.clone());
                closing.push(Closing { name: name.clone(), served, image_in });
            }
            false
        });
        if !closing.is_empty() {
            self.changed.notify_one();
            close_all(closing);
        }
        moved
    }
}

/// Closes pools side by side, and waits for the end of that as long as a disk may take.
fn close_all(closing: Vec<Closing>) {
    let deadline = Instant::now() + CLOSE;
    let (ended, ends) = mpsc::channel::<()>();
    for pool in closing {
        let (name, ended) = (pool.name.clone(), ended.clone());
        let close = move || {
            pool.close(deadline);
            drop(ended);
        };
        if let Err(error) = thread::Builder::new().name("close pool".to_owned()).spawn(close) {
            tracing::error!(pool = name, %error, "failed to start a thread that closes a pool");
        }
    }
    drop(ended);
    // Nobody sends anything: this ends when all threads have, or at the deadline.
    let _ = ends.recv_timeout(CLOSE);
}

impl Closing {
    fn close(self, deadline: Instant) {
        if let Some(served) = self.served {
            let _ = std::fs::remove_file(served.pool.layout().admin_socket());
            let pool = served.pool.clone();
            drop(served);
            // Until its tasks have ended the driver itself holds the lock of the pool.
            while Arc::strong_count(&pool) > 1 && Instant::now() < deadline {
                thread::park_timeout(Duration::from_millis(10));
            }
        }
        let Some(folder) = self.image_in else { return };
        if let Err(error) = pool_image::close(&folder) {
            tracing::warn!(pool = self.name, %error, "failed to unmount the image of a closed pool, unmount it by hand");
        }
    }
}

/// Whether no call works on a pool, and none of its volumes is in use. Asked under the lock of the slots, without which
/// nobody gets at the pool.
fn is_idle(served: &Arc<ServedPool>) -> bool {
    Arc::strong_count(served) == 1 && !served.in_use()
}
