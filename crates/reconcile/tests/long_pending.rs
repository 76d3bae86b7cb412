//! Keys that stay pending are named in the log.

use std::{
    fmt::{Debug, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::sleep;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    subscriber::{DefaultGuard, set_default},
};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use wharf_reconcile::{Attempt, Backoff, Config, Operation, Outcome, Reconciler, note_error};

/// Key 0 succeeds at once; others fail, by a panic from key 10 on.
struct Failing;

impl Operation<u32> for Failing {
    async fn run(&self, key: u32, attempt: Attempt) -> Outcome {
        if key == 0 {
            return Outcome::Done;
        }
        note_error(format_args!("driver refused {key} after {} failures", attempt.failures));
        assert!(key < 10, "no such key");
        Outcome::Retry
    }
}

/// The log: a line for each event.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("nobody panics while logging").push(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).expect("a text takes all");
    }
}

impl Log {
    /// The lines about keys that are pending for long.
    fn lines(&self) -> Vec<String> {
        let mut lines = self.0.lock().expect("nobody panics while logging").clone();
        lines.retain(|line| line.contains("message=object has been pending for long"));
        lines
    }
}

fn start() -> (Reconciler<u32>, Log, DefaultGuard) {
    let log = Log::default();
    let guard = set_default(tracing_subscriber::registry().with(log.clone()));
    let backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(64) };
    let config = Config { name: "claims", parallelism: 4, backoff, metrics: None };
    (Reconciler::start(config, Failing), log, guard)
}

#[tokio::test(start_paused = true)]
async fn a_pending_key_is_named_once_with_its_age_and_last_error() {
    let (reconciler, log, _guard) = start();
    for key in [0, 1] {
        reconciler.handle().wake(key);
    }
    sleep(Duration::from_secs(299)).await;
    assert_eq!(log.lines(), Vec::<String>::new());
    sleep(Duration::from_secs(2)).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    // It runs after 0, 1, 3, 7, ... 127, 191 and 255 s.
    let facts = [
        "WARN",
        "reconciler=\"claims\"",
        "key=1",
        "age=300",
        "failures=10",
        "error=\"driver refused 1 after 9 failures\"",
    ];
    for fact in facts {
        assert!(lines[0].contains(fact), "no {fact} in {}", lines[0]);
    }
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(log.lines().len(), 1, "named again");
    reconciler.handle().renew(1);
    sleep(Duration::from_secs(301)).await;
    assert_eq!(log.lines().len(), 2, "not named for what it became");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_is_named_with_the_panic() {
    let (reconciler, log, _guard) = start();
    reconciler.handle().wake(10);
    sleep(Duration::from_secs(301)).await;
    let lines = log.lines();
    assert!(lines.len() == 1 && lines[0].contains("panicked: no such key"), "{lines:?}");
}
