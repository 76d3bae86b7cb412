//! Writing the last good versions, which must not hold up what is in force.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::timeout,
};

use super::last_good::LastGood;

/// How long a write is waited for. A write that takes longer goes on in the background.
pub(super) const LIMIT: Duration = Duration::from_secs(1);

/// The text of each last good version, by the name of its file.
pub(super) type Versions = BTreeMap<String, Arc<[u8]>>;

/// Writes last good versions, one write at a time.
#[derive(Debug)]
pub(super) struct Keeper {
    last_good: Arc<Mutex<LastGood>>,
    write: Option<JoinHandle<io::Result<()>>>,
    /// Whether that write has been waited for in vain: it is not waited for again.
    is_late: bool,
}

impl Keeper {
    pub(super) fn new(last_good: LastGood) -> Self {
        Self { last_good: Arc::new(Mutex::new(last_good)), write: None, is_late: false }
    }

    /// Keeps these versions and no others.
    ///
    /// # Errors
    /// When a file cannot be written or removed, or the filesystem does not answer in time. A call
    /// tries again, and begins no write while the one before goes on.
    pub(super) async fn keep(&mut self, versions: Versions) -> Result<(), String> {
        if self.is_writing().await {
            return Err(late());
        }
        let last_good = self.last_good.clone();
        self.write = Some(spawn_blocking(move || {
            last_good.lock().unwrap_or_else(PoisonError::into_inner).keep(&versions)
        }));
        match self.ended().await {
            Some(kept) => kept.map_err(|error| error.to_string()),
            None => Err(late()),
        }
    }

    /// Whether a write goes on, also after it was waited for.
    pub(super) async fn is_writing(&mut self) -> bool {
        self.write.is_some() && self.ended().await.is_none()
    }

    /// The result of the write, if it ends in time.
    async fn ended(&mut self) -> Option<io::Result<()>> {
        let limit = if self.is_late { Duration::ZERO } else { LIMIT };
        let ended = timeout(limit, self.write.as_mut()?).await.ok();
        self.is_late = ended.is_none();
        let ended = ended?;
        self.write = None;
        Some(ended.unwrap_or_else(|error| Err(error.into())))
    }
}

fn late() -> String {
    format!("no answer from the filesystem within {LIMIT:?}")
}
