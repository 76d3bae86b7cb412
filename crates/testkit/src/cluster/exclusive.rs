//! A lock, so that one kubelet with its container runtime runs on this machine at a time, over all
//! test processes.

use std::{
    fs::{File, TryLockError},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::process::wait_for;

const TURN: Duration = Duration::from_secs(600);

/// Held while the kubelet runs; the kernel releases the lock when the process ends.
#[derive(Debug)]
pub(super) struct Exclusive(#[expect(dead_code, reason = "held for its lock")] File);

impl Exclusive {
    pub(super) async fn acquire() -> Result<Self> {
        let path = std::env::temp_dir().join("wharf-kubelet.lock");
        let file = File::create(&path).with_context(|| format!("lock file {}", path.display()))?;
        let what = format!("the lock {}, held while another test runs a kubelet", path.display());
        wait_for(TURN, &what, || {
            std::future::ready(match file.try_lock() {
                Err(TryLockError::WouldBlock) => None,
                locked => Some(locked),
            })
        })
        .await??;
        Ok(Self(file))
    }
}
