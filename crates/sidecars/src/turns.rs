//! Whoever holds an object and whoever lets it go take turns.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// Few operations run at a time, so that two objects hardly ever share a turn.
const LOCKS: usize = 64;

/// A turn for each object. One that sees a finalizer would else rely on it while another, who knows nothing of the first,
/// is about to remove it.
pub(crate) struct Turns {
    keys: RandomState,
    locks: [Mutex<()>; LOCKS],
}

impl Default for Turns {
    fn default() -> Self {
        Self { keys: RandomState::new(), locks: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl Turns {
    /// Waits for those who are at the object of this key.
    pub(crate) async fn take(&self, key: &str) -> MutexGuard<'_, ()> {
        let lock = self.keys.hash_one(key) % LOCKS as u64;
        self.locks[lock as usize].lock().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_is_at_an_object() {
        let turns = Turns::default();
        let first = turns.take("a").await;
        assert!(timeout(Duration::ZERO, turns.take("a")).await.is_err());
        drop(first);
        assert!(timeout(Duration::ZERO, turns.take("a")).await.is_ok());
    }
}
