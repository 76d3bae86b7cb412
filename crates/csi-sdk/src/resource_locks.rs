//! Locks for the resources behind volumes: devices, images, datasets.
//!
//! The SDK's calls lock volumes. That does not suffice for a resource: a node publishes one volume
//! at several targets concurrently, and an administrator's command is not a call. Code that looks
//! up a device and then attaches, mounts, binds or detaches it must exclude all other users in
//! between, or the path may name another device by then.
//!
//! The *owner* of a resource attaches, mounts, binds, detaches or deletes it. *Readers* read the
//! whole resource; several may do so at once, also while it has an owner. An owner takes a *change*
//! guard to write to the resource past its users: it waits for the present readers and blocks new
//! ones.
//!
//! Waits block the thread, for at most a minute: take these locks on a thread that may block. To
//! rule out deadlocks, a reader must not wait to become an owner.
//!
//! ```
//! use wharf_csi_sdk::resource_locks::ResourceLocks;
//!
//! let locks: ResourceLocks<String> = ResourceLocks::default();
//! let owner = locks.own(&"image-1".to_owned())?;
//! // Look up the device, attach it if it is not, bind it: nobody detaches it meanwhile.
//! let change = owner.change()?;
//! // Grow the image: nobody copies it meanwhile.
//! drop(change);
//! # Ok::<(), wharf_csi_sdk::resource_locks::StillLocked>(())
//! ```

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Maximum wait for a lock.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Another caller held the lock for a minute. Answer ABORTED, so that the orchestrator retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another call holds the lock")]
pub struct StillLocked;

/// Locks of all resources of one kind.
#[derive(Debug)]
pub struct ResourceLocks<K> {
    resources: Mutex<HashMap<K, Held>>,
    released: Condvar,
}

impl<K> Default for ResourceLocks<K> {
    fn default() -> Self {
        Self { resources: Mutex::new(HashMap::new()), released: Condvar::new() }
    }
}

/// State of one resource. An unlocked resource has no entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    owned: bool,
    readers: usize,
    changing: bool,
}

impl<K: Clone + Eq + Hash> ResourceLocks<K> {
    /// Becomes the owner of a resource.
    ///
    /// # Errors
    /// If another caller owns it for more than a minute.
    pub fn own(&self, resource: &K) -> Result<OwnerLock<'_, K>, StillLocked> {
        self.wait(resource, |held| !held.owned, |held| held.owned = true)?;
        Ok(OwnerLock { locks: self, resource: resource.clone() })
    }

    /// Becomes a reader of a resource.
    ///
    /// # Errors
    /// If its owner changes it for more than a minute.
    pub fn read(&self, resource: &K) -> Result<ReadLock<'_, K>, StillLocked> {
        self.wait(resource, |held| !held.changing, |held| held.readers += 1)?;
        Ok(ReadLock { locks: self, resource: resource.clone() })
    }

    fn wait(
        &self,
        resource: &K,
        is_free: impl Fn(&Held) -> bool,
        take: impl FnOnce(&mut Held),
    ) -> Result<(), StillLocked> {
        let deadline = Instant::now() + MAX_WAIT;
        let mut resources = self.resources();
        while !resources.get(resource).is_none_or(&is_free) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StillLocked);
            }
            let waited = self.released.wait_timeout(resources, left);
            resources = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        take(resources.entry(resource.clone()).or_default());
        Ok(())
    }
}

impl<K: Eq + Hash> ResourceLocks<K> {
    fn release(&self, resource: &K, give_back: impl FnOnce(&mut Held)) {
        let mut resources = self.resources();
        if let Some(held) = resources.get_mut(resource) {
            give_back(held);
            if *held == Held::default() {
                resources.remove(resource);
            }
        }
        self.released.notify_all();
    }

    fn resources(&self) -> MutexGuard<'_, HashMap<K, Held>> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ownership of a resource, until this guard is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this guard is dropped"]
pub struct OwnerLock<'a, K: Eq + Hash> {
    locks: &'a ResourceLocks<K>,
    resource: K,
}

impl<K: Clone + Eq + Hash> OwnerLock<'_, K> {
    /// Waits for the present readers, and blocks new ones until the guard is dropped. Takes one
    /// guard at a time.
    ///
    /// # Errors
    /// If the resource is read for more than a minute.
    pub fn change(&self) -> Result<ChangeGuard<'_, K>, StillLocked> {
        let free = |held: &Held| held.readers == 0 && !held.changing;
        self.locks.wait(&self.resource, free, |held| held.changing = true)?;
        Ok(ChangeGuard { locks: self.locks, resource: &self.resource })
    }
}

impl<K: Eq + Hash> Drop for OwnerLock<'_, K> {
    fn drop(&mut self) {
        self.locks.release(&self.resource, |held| held.owned = false);
    }
}

/// A read lock: the owner cannot change the resource until this guard is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this guard is dropped"]
pub struct ReadLock<'a, K: Eq + Hash> {
    locks: &'a ResourceLocks<K>,
    resource: K,
}

impl<K: Eq + Hash> Drop for ReadLock<'_, K> {
    fn drop(&mut self) {
        self.locks.release(&self.resource, |held| held.readers -= 1);
    }
}

/// Excludes readers of a resource until this guard is dropped.
#[derive(Debug)]
#[must_use = "the lock is released when this guard is dropped"]
pub struct ChangeGuard<'a, K: Eq + Hash> {
    locks: &'a ResourceLocks<K>,
    resource: &'a K,
}

impl<K: Eq + Hash> Drop for ChangeGuard<'_, K> {
    fn drop(&mut self) {
        self.locks.release(self.resource, |held| held.changing = false);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    const IMAGE: &str = "image";

    #[test]
    fn readers_go_beside_each_other_and_beside_an_owner() {
        let locks = ResourceLocks::default();
        let _owner = locks.own(&IMAGE).unwrap();
        let _first = locks.read(&IMAGE).unwrap();
        let _second = locks.read(&IMAGE).unwrap();
    }

    #[test]
    fn an_owner_waits_for_the_one_before() {
        let locks = ResourceLocks::default();
        let first = locks.own(&IMAGE).unwrap();
        let other = locks.own(&"other").unwrap();
        let (send, steps) = mpsc::channel();
        thread::scope(|scope| {
            let (locks, send) = (&locks, &send);
            let second = scope.spawn(move || {
                let _second = locks.own(&IMAGE).unwrap();
                send.send("second").unwrap();
            });
            send.send("first").unwrap();
            drop(first);
            second.join().unwrap();
        });
        drop((send, other));
        assert_eq!(steps.into_iter().collect::<Vec<_>>(), ["first", "second"]);
        assert!(locks.resources().is_empty());
    }

    #[test]
    fn a_change_waits_for_readers_and_holds_new_ones_up() {
        let locks = ResourceLocks::default();
        let reader = locks.read(&IMAGE).unwrap();
        let (send, steps) = mpsc::channel();
        thread::scope(|scope| {
            let (locks, send) = (&locks, &send);
            let owner = locks.own(&IMAGE).unwrap();
            let changer = scope.spawn(move || {
                let _change = owner.change().unwrap();
                send.send("changed").unwrap();
            });
            // The change cannot begin before this is sent.
            send.send("read").unwrap();
            drop(reader);
            changer.join().unwrap();
            let _reader = locks.read(&IMAGE).unwrap();
            send.send("read again").unwrap();
        });
        drop(send);
        assert_eq!(steps.into_iter().collect::<Vec<_>>(), ["read", "changed", "read again"]);
        assert!(locks.resources().is_empty());
    }
}
