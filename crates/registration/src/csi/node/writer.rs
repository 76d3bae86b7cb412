use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wharf_csi::NodeInfo;

use super::{
    plan::{Refusals, Wanted},
    record::{NodeObjects, RecordOptions, SyncError},
};
use crate::manager::PluginRefusal;

/// The first pause after a failed write, the factor of its growth, and the longest pause; the
/// kubelet's values, except for the last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const PAUSE_GROWTH: u32 = 5;
const LAST_PAUSE: Duration = Duration::from_secs(10);

type Reply = oneshot::Sender<Result<(), PluginRefusal>>;

/// An order to the writer of a [`super::NodeRecord`].
pub(super) enum Order {
    Install { name: String, info: NodeInfo, reply: Option<Reply> },
    Leave { name: String },
}

/// The task that writes: it collects orders and syncs until everything is written.
pub(super) struct Writer {
    objects: Arc<dyn NodeObjects>,
    options: RecordOptions,
    entries: BTreeMap<String, Entry>,
    arrivals: u64,
    waiting: Vec<(String, Reply)>,
    unknown_until: Option<Instant>,
    due: Option<Instant>,
    pause: Duration,
    /// A write was refused, and it is unknown which driver caused that: new information is written
    /// one driver at a time until all of it is written, so that one driver's fault does not refuse
    /// the others.
    singly: bool,
}

struct Entry {
    info: NodeInfo,
    /// The information written last. A refused installation falls back to it.
    written: Option<NodeInfo>,
    came: u64,
    leaves_at: Option<Instant>,
}

impl Entry {
    fn is_news(&self) -> bool {
        self.written.as_ref() != Some(&self.info)
    }
}

impl Writer {
    pub(super) fn new(objects: Arc<dyn NodeObjects>, options: RecordOptions) -> Self {
        let now = Instant::now();
        Self {
            objects,
            options,
            entries: BTreeMap::new(),
            arrivals: 0,
            waiting: Vec::new(),
            unknown_until: Some(now + options.grace),
            due: Some(now),
            pause: FIRST_PAUSE,
            singly: false,
        }
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Order>, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                order = inbox.recv() => match order {
                    None => return,
                    Some(order) => {
                        self.take(order);
                        // Drivers that register together are written together.
                        while let Ok(order) = inbox.try_recv() {
                            self.take(order);
                        }
                    }
                },
                () = until(self.next_event()) => {}
            }
            self.expire(Instant::now());
            if self.due.is_some_and(|due| due <= Instant::now())
                && stop.run_until_cancelled(self.write()).await.is_none()
            {
                return;
            }
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Install { name, info, reply } => {
                self.arrivals += 1;
                let known = self.entries.remove(&name);
                // A background update must not restore a driver that has left.
                if reply.is_none() && known.as_ref().is_none_or(|entry| entry.leaves_at.is_some()) {
                    self.entries.extend(known.map(|entry| (name, entry)));
                    return;
                }
                let came = known.as_ref().map_or(self.arrivals, |entry| entry.came);
                let written = known.and_then(|entry| entry.written);
                self.entries.insert(name.clone(), Entry { info, written, came, leaves_at: None });
                self.waiting.extend(reply.map(|reply| (name, reply)));
                self.due = Some(Instant::now());
            }
            Order::Leave { name } => match self.entries.get_mut(&name) {
                Some(entry) if entry.written.is_some() => {
                    entry.leaves_at = Some(Instant::now() + self.options.grace);
                }
                // It was never written, so there is no entry to keep.
                _ => drop(self.entries.remove(&name)),
            },
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let leaving = self.entries.values().filter_map(|entry| entry.leaves_at);
        leaving.chain(self.due).chain(self.unknown_until).min()
    }

    /// Ends grace periods.
    fn expire(&mut self, now: Instant) {
        let before = self.entries.len();
        self.entries.retain(|_, entry| entry.leaves_at.is_none_or(|at| at > now));
        let unknown_over = self.unknown_until.is_some_and(|until| until <= now);
        if unknown_over {
            self.unknown_until = None;
        }
        if unknown_over || self.entries.len() != before {
            self.due = Some(now);
        }
    }

    async fn write(&mut self) {
        let (wanted, news) = self.wanted();
        match self.objects.sync(&wanted).await {
            Ok(refused) => {
                self.due = None;
                self.pause = FIRST_PAUSE;
                self.settle(&news, &refused);
            }
            Err(SyncError::Transient(reason)) => self.later(&reason),
            Err(SyncError::Permanent(reason)) => self.reject(&news, &reason),
        }
    }

    /// The goal of this write, and the drivers whose information is new in it.
    fn wanted(&self) -> (Wanted, Vec<String>) {
        let mut ordered: Vec<_> = self.entries.iter().collect();
        ordered.sort_by_key(|(_, entry)| entry.came);
        let limit = if self.singly { 1 } else { usize::MAX };
        let news = ordered.iter().filter(|(_, entry)| entry.is_news()).take(limit);
        let news: Vec<String> = news.map(|(name, _)| (*name).clone()).collect();
        let drivers = ordered.into_iter().filter_map(|(name, entry)| {
            let info = if news.contains(name) { Some(&entry.info) } else { entry.written.as_ref() };
            info.map(|info| (name.clone(), info.clone()))
        });
        let drivers: Vec<_> = drivers.collect();
        let written = drivers.iter().map(|(name, _)| name).filter(|name| !news.contains(name));
        let written = written.cloned().collect();
        (Wanted { drivers, written, keep_unknown: self.unknown_until.is_some() }, news)
    }

    fn settle(&mut self, news: &[String], refused: &Refusals) {
        for name in news.iter().filter(|name| !refused.contains_key(*name)) {
            if let Some(entry) = self.entries.get_mut(name) {
                info!(driver = %name, node_id = %entry.info.node_id,
                    max_volumes = entry.info.max_volumes, topology = ?entry.info.topology,
                    "driver installed");
                entry.written = Some(entry.info.clone());
            }
        }
        for (name, reason) in refused {
            warn!(driver = %name, error = %reason, "refused driver");
            self.answer(name, || {
                Err(PluginRefusal(format!(
                    "error updating Node object with CSI driver node info: {reason}"
                )))
            });
            let Some(mut entry) = self.entries.remove(name) else { continue };
            // The API no longer has it. The information written before is written again.
            if entry.is_news()
                && let Some(before) = entry.written.take()
            {
                entry.info = before;
                self.entries.insert(name.clone(), entry);
            }
        }
        let written: Vec<_> = self.waiting.iter().map(|(name, _)| name.clone()).collect();
        for name in written {
            if self.entries.get(&name).is_none_or(|entry| !entry.is_news()) {
                self.answer(&name, || Ok(()));
            }
        }
        self.singly &= self.has_news();
        if self.has_news() {
            self.due = Some(Instant::now());
        }
    }

    /// Finds the driver that the API does not accept, and refuses that one only.
    fn reject(&mut self, news: &[String], reason: &str) {
        let refusal = || {
            Err(PluginRefusal(format!(
                "error updating CSINode object with CSI driver node info: {reason}"
            )))
        };
        match news {
            [] => {
                for (_, reply) in self.waiting.drain(..) {
                    let _ = reply.send(refusal());
                }
                self.later(reason);
            }
            [name] => {
                warn!(driver = %name, error = %reason, "refused driver");
                self.answer(name, refusal);
                if let Some(mut entry) = self.entries.remove(name)
                    && let Some(before) = entry.written.clone()
                {
                    entry.info = before;
                    self.entries.insert(name.clone(), entry);
                }
                // The write may have succeeded in part.
                self.due = Some(Instant::now());
            }
            _ => {
                self.singly = true;
                self.due = Some(Instant::now());
            }
        }
    }

    fn later(&mut self, reason: &str) {
        warn!(error = %reason, again_in = ?self.pause, "failed to write CSINode and Node, retrying");
        self.due = Some(Instant::now() + self.pause);
        self.pause = (self.pause * PAUSE_GROWTH).min(LAST_PAUSE);
    }

    fn has_news(&self) -> bool {
        self.entries.values().any(Entry::is_news)
    }

    /// Replies to every installation that waits for a driver; some callers may have left.
    fn answer(&mut self, name: &str, outcome: impl Fn() -> Result<(), PluginRefusal>) {
        for (_, reply) in self.waiting.extract_if(.., |(waiting, _)| waiting == name) {
            let _ = reply.send(outcome());
        }
    }
}

/// Sleeps until `at`, or for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
