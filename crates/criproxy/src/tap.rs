//! Live calls, for `wharf proxy tap`.
//!
//! A call that nobody watches costs one look at an atomic number. Each reader has a queue with a
//! fixed number of places: for a reader that is too slow calls are dropped and counted, and no call
//! ever waits for a reader.

mod call;
mod filter;
mod serve;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{self, error::TrySendError};

pub(crate) use self::{call::Tapped, serve::Ending};
pub use self::{
    call::{TapCall, TapEvent},
    filter::TapFilter,
};

/// As many readers there may be at once.
const MOST: usize = 8;
/// As many calls wait for a reader.
const QUEUE: usize = 1024;

/// A line to a reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapLine {
    /// A call.
    Call(Box<TapCall>),
    /// As many calls were dropped since the last such line, as lines were not read fast enough.
    Dropped(u64),
    /// The last line.
    End(TapEnd),
}

/// Why there are no more lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TapEnd {
    /// Another process has taken over the proxy: ask again.
    Replaced,
    /// The proxy stops.
    Stopping,
}

/// The readers of one proxy. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taps(Arc<TapsShared>);

#[derive(Debug, Default)]
struct TapsShared {
    /// How many readers there are.
    open: AtomicUsize,
    readers: Mutex<Vec<Reader>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Reader {
    id: u64,
    filter: TapFilter,
    queue: mpsc::Sender<Arc<TapCall>>,
    dropped: Arc<AtomicU64>,
}

/// The calls for one reader, who leaves when this is dropped.
pub(crate) struct Calls {
    taps: Taps,
    id: u64,
    queue: mpsc::Receiver<Arc<TapCall>>,
    dropped: Arc<AtomicU64>,
}

impl Taps {
    /// A call that begins, if somebody may want to see it.
    pub(crate) fn begin(&self, method: &str) -> Option<Box<Tapped>> {
        if self.0.open.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(Box::new(Tapped::begin(self.clone(), method)))
    }

    /// Takes a reader in.
    ///
    /// # Errors
    /// A sentence: there are too many.
    pub(crate) fn join(&self, filter: TapFilter) -> Result<Calls, String> {
        let mut readers = self.readers();
        if readers.len() >= MOST {
            return Err(format!(
                "{MOST} taps are open, the most that the proxy serves: end one of them first"
            ));
        }
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, queue) = mpsc::channel(QUEUE);
        let dropped = Arc::<AtomicU64>::default();
        readers.push(Reader { id, filter, queue: sender, dropped: dropped.clone() });
        self.0.open.store(readers.len(), Ordering::Relaxed);
        Ok(Calls { taps: self.clone(), id, queue, dropped })
    }

    /// Shows a call to those who want to see it.
    fn show(&self, call: TapCall) {
        let call = Arc::new(call);
        for reader in self.readers().iter().filter(|reader| reader.filter.wants(&call)) {
            if let Err(TrySendError::Full(_)) = reader.queue.try_send(call.clone()) {
                reader.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn leave(&self, id: u64) {
        let mut readers = self.readers();
        readers.retain(|reader| reader.id != id);
        self.0.open.store(readers.len(), Ordering::Relaxed);
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.0.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Calls {
    /// The next line.
    pub(crate) async fn next(&mut self) -> TapLine {
        if let Some(line) = self.dropped() {
            return line;
        }
        match self.queue.recv().await {
            Some(call) => TapLine::Call(Box::new(TapCall::clone(&call))),
            // The sender is with the taps until this is dropped.
            None => TapLine::End(TapEnd::Stopping),
        }
    }

    /// The next line, if there is one already.
    pub(crate) fn try_next(&mut self) -> Option<TapLine> {
        self.dropped().or_else(|| {
            let call = self.queue.try_recv().ok()?;
            Some(TapLine::Call(Box::new(TapCall::clone(&call))))
        })
    }

    /// The calls that were dropped since the last time.
    fn dropped(&self) -> Option<TapLine> {
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        (dropped > 0).then_some(TapLine::Dropped(dropped))
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        self.taps.leave(self.id);
    }
}
