//! The task that tries pools again, and the task of each pool that keeps limits and unshares copies.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{
    task::{JoinSet, spawn_blocking},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{Pools, ServedPool, close::CLOSE};
use crate::{node::keep_limits, unsharing::keep_unshared};

/// How often a pool that is not served is tried again, and a pool that leaves.
const RETRY: Duration = Duration::from_secs(5);

/// The tasks of a pool end when this is dropped.
struct Keeper {
    pool: Arc<crate::pool::Pool>,
    stop: CancellationToken,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Pools {
    /// Keeps the limits of the volumes of every pool, and tries pools again that are not served, until `stop`.
    pub async fn supervise(self: Arc<Self>, stop: CancellationToken) {
        let mut keepers: HashMap<String, Keeper> = HashMap::new();
        let (mut tasks, mut attempts) = (JoinSet::new(), JoinSet::new());
        loop {
            self.follow(&mut keepers, &mut tasks);
            let again = self.needs_retry() && attempts.is_empty();
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.changed.notified() => {}
                Some(_) = tasks.join_next() => {}
                // A panic shows in the log; the next attempt goes on.
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
        // A task may be at a disk that hangs.
        if timeout(CLOSE, end).await.is_err() {
            tracing::warn!("tasks of pools do not end, stopping without them");
        }
    }

    /// Records what was undone of pools while their disk took no writes: a pool leaves once its records say that nothing is
    /// in use. One thread of each pool may wait for its disk.
    fn record_undone(&self) {
        for served in self.served() {
            if let Ok(permit) = served.permits.undone.clone().try_acquire_owned() {
                // Nobody waits for it, and the next attempt goes on if it panics.
                drop(spawn_blocking(move || {
                    let _permit = permit;
                    served.node.record_undone_before();
                }));
            }
        }
    }

    fn needs_retry(&self) -> bool {
        self.slots().values().any(|slot| slot.leaving.is_some() || slot.served().is_none())
    }

    /// Runs exactly one keeper for each pool that is served.
    fn follow(&self, keepers: &mut HashMap<String, Keeper>, tasks: &mut JoinSet<()>) {
        let served = self.served();
        keepers.retain(|name, keeper| {
            served.iter().any(|it| it.name == *name && Arc::ptr_eq(&it.pool, &keeper.pool))
        });
        for pool in &served {
            if !keepers.contains_key(&pool.name) {
                let stop = CancellationToken::new();
                tasks.spawn(keep(pool, stop.clone()));
                keepers.insert(pool.name.clone(), Keeper { pool: pool.pool.clone(), stop });
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
            tracing::warn!(pool = name, %error, "limits of volumes do not reach containers that start later");
        }
    }
}
