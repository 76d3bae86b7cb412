//! Closes pools, each in its own thread: a disk that hangs blocks callers for a few seconds at
//! most.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use super::{Leaving, Pools, ServedPool, SlotState};
use crate::{config::PoolConfig, pool_image};

/// Maximum wait for a pool's tasks. A pool that is still held then is opened by a later retry.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// A pool that has been removed from its slot.
struct Closing {
    name: String,
    served: Option<Arc<ServedPool>>,
    /// Folder whose pool image is unmounted.
    image_in: Option<PathBuf>,
}

impl Pools {
    /// Closes all pools when the driver stops, then releases the driver's folder. Waits at most 5 s
    /// for disks that hang. Must be the last call.
    pub fn close(&self) {
        let slots = std::mem::take(&mut *self.slots_mut());
        let closing = slots.into_iter().filter_map(|(name, slot)| {
            let served = slot.served().cloned()?;
            Some(Closing { name, served: Some(served), image_in: None })
        });
        close_all(closing.collect());
        self.state_dir.release();
    }

    /// Closes pools that are leaving and not in use. Returns the configurations to open in their
    /// place.
    pub(super) fn close_leaving(&self) -> Vec<PoolConfig> {
        let (mut moved, mut closing) = (Vec::new(), Vec::new());
        self.slots_mut().retain(|name, slot| {
            let Some(leaving) = &slot.leaving else { return true };
            let served = match &slot.state {
                SlotState::Absent(_) => None,
                SlotState::Served(served) if is_idle(served) => {
                    tracing::info!(pool = name, "closing pool");
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
            // An opening thread unmounts the pool image itself.
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

/// Closes pools in parallel, and waits for them up to a limit.
fn close_all(closing: Vec<Closing>) {
    let deadline = Instant::now() + CLOSE_WAIT;
    let (ended, ends) = mpsc::channel::<()>();
    for pool in closing {
        let (name, ended) = (pool.name.clone(), ended.clone());
        let close = move || {
            pool.close(deadline);
            drop(ended);
        };
        if let Err(error) = thread::Builder::new().name("close pool".to_owned()).spawn(close) {
            tracing::error!(pool = name, %error, "failed to start thread to close pool");
        }
    }
    drop(ended);
    // The channel carries no messages: it disconnects when all threads have ended.
    let _ = ends.recv_timeout(CLOSE_WAIT);
}

impl Closing {
    fn close(self, deadline: Instant) {
        if let Some(served) = self.served {
            let _ = std::fs::remove_file(served.pool.layout().admin_socket());
            let pool = served.pool.clone();
            drop(served);
            // The tasks hold the lock of the pool until they end.
            while Arc::strong_count(&pool) > 1 && Instant::now() < deadline {
                thread::park_timeout(Duration::from_millis(10));
            }
        }
        let Some(folder) = self.image_in else { return };
        if let Err(error) = pool_image::close(&folder) {
            tracing::warn!(pool = self.name, %error, "failed to unmount pool image, unmount it by hand");
        }
    }
}

/// Whether no call works on a pool and none of its volumes is in use. Call it under the lock of the
/// slots, without which no call can get the pool.
fn is_idle(served: &Arc<ServedPool>) -> bool {
    Arc::strong_count(served) == 1 && !served.in_use()
}
