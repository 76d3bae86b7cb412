//! The task that makes passes on events, and [`DirWatch`] that owns it.

use std::{panic::resume_unwind, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{Change, Counters, Options, tree::Tree};

/// Changes that may wait for a slow reader. When they are full, events wait in the kernel; when
/// these overflow, the next pass is a scan.
const BACKLOG: usize = 256;
/// The first pause between scans while the watch has a fault; it doubles up to [`Options::rescan`].
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// How long a stop waits for a pass.
const LAST_CALL: Duration = Duration::from_secs(1);
/// Scans are never closer than this, whatever the options say.
const SHORTEST_RESCAN: Duration = Duration::from_millis(10);

/// A running watch. Dropping it ends its task; [`DirWatch::stop`] also waits for that.
#[derive(Debug)]
pub struct DirWatch {
    changes: mpsc::Receiver<Change>,
    trouble: watch::Receiver<Option<String>>,
    counters: Counters,
    task: JoinSet<Option<()>>,
    /// Also ends a scan on a blocking thread, which cannot be aborted.
    stop: DropGuard,
}

impl DirWatch {
    /// Starts a watch. Must be called inside a tokio runtime with I/O and timers.
    pub fn start(options: Options) -> Self {
        let (sender, changes) = mpsc::channel(BACKLOG);
        let (troubled, trouble) = watch::channel(None);
        let counters = Counters::default();
        let stop = CancellationToken::new();
        let rescan = options.rescan.max(SHORTEST_RESCAN);
        let tree = Tree::new(options, counters.clone(), stop.clone());
        let mut task = JoinSet::new();
        let report = Report { sender, troubled };
        task.spawn(watch(tree, Pace::new(rescan), report, stop.clone()));
        Self { changes, trouble, counters, task, stop: stop.drop_guard() }
    }

    /// The next change; `None` after the watch has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Change> {
        self.changes.recv().await
    }

    /// The fault of the watch when the last change was reported. Ask after [`Change::Synced`] if it
    /// is better not to start than to see changes late.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// Ends the watch and waits for its task.
    pub async fn stop(self) {
        let Self { stop, mut task, .. } = self;
        drop(stop);
        while task.join_next().await.is_some() {}
    }

    /// The counters, to be kept when the watch is moved elsewhere.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// Scans of the whole tree, the first included.
    pub fn rescans(&self) -> u64 {
        self.counters.rescans()
    }

    /// Events read from inotify.
    pub fn events(&self) -> u64 {
        self.counters.events()
    }

    /// Times that the kernel dropped events because its queue was full.
    pub fn overflows(&self) -> u64 {
        self.counters.overflows()
    }
}

/// Receives the findings of a pass.
#[derive(Debug)]
struct Report {
    sender: mpsc::Sender<Change>,
    troubled: watch::Sender<Option<String>>,
}

/// Makes passes until it is stopped, its reader is dropped, or the runtime shuts down.
async fn watch(
    mut tree: Tree,
    mut pace: Pace,
    report: Report,
    stop: CancellationToken,
) -> Option<()> {
    loop {
        let rescanned = tree.plans_rescan();
        let (back, changes) = pass(tree, &stop).await?;
        tree = back;
        // Set before the changes are sent: a reader may ask for the fault when it gets one.
        report.troubled.send_replace(tree.trouble().map(str::to_owned));
        for change in changes {
            stop.run_until_cancelled(report.sender.send(change)).await?.ok()?;
        }
        pace.after_pass(rescanned, tree.trouble().is_some());
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tree.heard() => {}
            () = pace.rescan_is_due() => tree.plan_rescan(),
        }
    }
}

/// Makes one pass, on a blocking thread if it may take long. `None` after a stop.
async fn pass(mut tree: Tree, stop: &CancellationToken) -> Option<(Tree, Vec<Change>)> {
    if !tree.plans_much() {
        let changes = tree.pass();
        return Some((tree, changes));
    }
    let mut elsewhere = spawn_blocking(move || {
        let changes = tree.pass();
        (tree, changes)
    });
    let passed = tokio::select! {
        passed = &mut elsewhere => passed,
        // A pass ends soon after a stop, unless a filesystem hangs: then it is not waited for.
        () = stop.cancelled() => timeout(LAST_CALL, elsewhere).await.ok()?,
    };
    match passed {
        Ok(passed) => Some(passed),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_cancelled) => None,
        },
    }
}

/// When to scan next.
#[derive(Debug)]
struct Pace {
    rescan: Duration,
    /// The pause after the next scan that finds trouble.
    retry: Duration,
    troubled: bool,
    due: Option<Instant>,
}

impl Pace {
    fn new(rescan: Duration) -> Self {
        Self { rescan, retry: FIRST_RETRY.min(rescan), troubled: false, due: None }
    }

    fn after_pass(&mut self, rescanned: bool, troubled: bool) {
        let newly_troubled = troubled && !self.troubled;
        self.troubled = troubled;
        if !rescanned && !newly_troubled {
            return;
        }
        let pause = if troubled { self.retry } else { self.rescan };
        self.retry =
            if troubled { (self.retry * 2).min(self.rescan) } else { FIRST_RETRY.min(self.rescan) };
        // A pause too long for the clock never ends.
        self.due = Instant::now().checked_add(pause);
    }

    async fn rescan_is_due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}
