//! The task that retries to open pools, and the task of each pool that applies limits and unshares
//! copies.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    task::{JoinSet, spawn_blocking},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{Pools, ServedPool, close::CLOSE_WAIT};
use crate::{node::keep_limits, unsharing::keep_unshared};

/// Interval of retries for pools that are not served or are leaving.
const RETRY: Duration = Duration::from_secs(5);

/// The task of a pool. Dropping this stops it.
struct PoolTasks {
    pool: Arc<crate::pool::Pool>,
    stop: CancellationToken,
}

impl Drop for PoolTasks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Pools {
    /// Applies limits and unshares copies on every pool, and retries to open pools that are not
    /// served, until `stop`.
    pub async fn supervise(self: Arc<Self>, stop: CancellationToken) {
        let mut keepers: HashMap<String, PoolTasks> = HashMap::new();
        let (mut tasks, mut attempts) = (JoinSet::new(), JoinSet::new());
        loop {
            self.follow(&mut keepers, &mut tasks);
            let again = self.needs_retry() && attempts.is_empty();
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.changed.notified() => {}
                Some(_) = tasks.join_next() => {}
                // A panic is in the log; the next attempt continues.
                Some(_) = attempts.join_next() => {}
                () = tokio::time::sleep(RETRY), if again => {
                    self.record_undone();
                    let pools = self.clone();
                    attempts.spawn_blocking(move || pools.retry());
                }
            }
        }
        keepers.clear();
        let end = async {
            while tasks.join_next().await.is_some() {}
            while attempts.join_next().await.is_some() {}
        };
        // A task may be blocked by a disk that hangs.
        if timeout(CLOSE_WAIT, end).await.is_err() {
            tracing::warn!("stopping without waiting for tasks of pools");
        }
    }

    /// Records undos that could not be written before: a leaving pool is closed only when its
    /// records show no use. At most one thread per pool waits for its disk.
    fn record_undone(&self) {
        for served in self.served() {
            if let Ok(permit) = served.permits.undone.clone().try_acquire_owned() {
                // Its result is not needed, and after a panic the next attempt continues.
                drop(spawn_blocking(move || {
                    let _permit = permit;
                    served.node.record_pending_undos();
                }));
            }
        }
    }

    fn needs_retry(&self) -> bool {
        self.slots().values().any(|slot| slot.leaving.is_some() || slot.served().is_none())
    }

    /// Runs exactly one task for each served pool.
    fn follow(&self, keepers: &mut HashMap<String, PoolTasks>, tasks: &mut JoinSet<()>) {
        let served = self.served();
        keepers.retain(|name, keeper| {
            served.iter().any(|it| it.name == *name && Arc::ptr_eq(&it.pool, &keeper.pool))
        });
        for pool in &served {
            if !keepers.contains_key(&pool.name) {
                let stop = CancellationToken::new();
                tasks.spawn(keep(pool, stop.clone()));
                keepers.insert(pool.name.clone(), PoolTasks { pool: pool.pool.clone(), stop });
            }
        }
    }
}

fn keep(served: &ServedPool, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
    let name = served.name.clone();
    let unsharing = keep_unshared(served.pool.clone(), stop.clone());
    let limits = keep_limits(served.node.clone(), stop);
    async move {
        let (kept, ()) = tokio::join!(limits, unsharing);
        if let Err(error) = kept {
            tracing::warn!(pool = name, %error, "failed to apply limits to later containers");
        }
    }
}
