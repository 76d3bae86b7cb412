//! The driver under a paused clock: which keys run, when, and in parallel to which others.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use wharf_reconcile::{Attempt, Backoff, Config, Operation, Outcome, Phase, Reconciler};

const LIMIT: Duration = Duration::from_secs(3600);

fn config(parallelism: usize) -> Config {
    Config { name: "test", parallelism, backoff: Backoff::KUBELET, metrics: None }
}

/// Reports each run, and ends it as the test says.
struct Scripted {
    runs: mpsc::UnboundedSender<Run>,
}

/// A run that waits for its outcome.
struct Run {
    key: u32,
    attempt: Attempt,
    end: tokio::sync::oneshot::Sender<Outcome>,
}

impl Operation<u32> for Scripted {
    async fn run(&self, key: u32, attempt: Attempt) -> Outcome {
        let (end, outcome) = tokio::sync::oneshot::channel();
        self.runs.send(Run { key, attempt, end }).ok();
        outcome.await.expect("the test lets the run end by panicking or with an outcome")
    }
}

struct Fixture {
    reconciler: Reconciler<u32>,
    runs: mpsc::UnboundedReceiver<Run>,
}

impl Fixture {
    fn new(parallelism: usize) -> Self {
        let (sender, runs) = mpsc::unbounded_channel();
        Self { reconciler: Reconciler::start(config(parallelism), Scripted { runs: sender }), runs }
    }

    async fn next(&mut self) -> Run {
        timeout(LIMIT, self.runs.recv()).await.expect("a run within the limit").expect("a run")
    }

    /// Fails if a run starts within the time limit.
    async fn nothing_runs(&mut self) {
        assert!(timeout(LIMIT, self.runs.recv()).await.is_err(), "an unexpected run");
    }

    async fn idle(&self) {
        timeout(LIMIT, self.reconciler.handle().idle()).await.expect("idle within the limit");
    }
}

impl Run {
    fn end(self, outcome: Outcome) {
        self.end.send(outcome).expect("the run waits");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_as_the_kubelet_does() {
    let mut fixture = Fixture::new(1);
    fixture.reconciler.handle().wake(1);
    let mut waits = Vec::new();
    for failures in 0..11 {
        let asked = Instant::now();
        let run = fixture.next().await;
        waits.push(asked.elapsed().as_secs_f64());
        assert_eq!(run.attempt.failures, failures);
        run.end(Outcome::Retry);
    }
    assert_eq!(waits, [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0]);
}

#[tokio::test(start_paused = true)]
async fn success_clears_the_back_off() {
    let mut fixture = Fixture::new(1);
    let handle = fixture.reconciler.handle();
    handle.wake(1);
    fixture.next().await.end(Outcome::Retry);
    fixture.next().await.end(Outcome::Retry);
    fixture.next().await.end(Outcome::Done);
    fixture.idle().await;
    assert_eq!(handle.snapshot(&1), None);
    handle.wake(1);
    let run = fixture.next().await;
    assert_eq!(run.attempt.failures, 0);
    run.end(Outcome::Retry);
    let asked = Instant::now();
    fixture.next().await.end(Outcome::Done);
    assert_eq!(asked.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_its_own_uses_up_no_step() {
    let mut fixture = Fixture::new(1);
    fixture.reconciler.handle().wake(1);
    for _ in 0..5 {
        fixture.next().await.end(Outcome::RetryAfter(Duration::from_millis(20)));
    }
    let run = fixture.next().await;
    assert_eq!(run.attempt.failures, 5);
    run.end(Outcome::Retry);
    let asked = Instant::now();
    fixture.next().await.end(Outcome::Done);
    assert_eq!(asked.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn a_wake_leaves_the_back_off_alone_and_a_renewal_ends_it() {
    let mut fixture = Fixture::new(1);
    let handle = fixture.reconciler.handle();
    handle.wake(1);
    for _ in 0..6 {
        fixture.next().await.end(Outcome::Retry);
    }
    fixture.idle().await;
    let asked = Instant::now();
    let waiting = handle.snapshot(&1).expect("the key is known");
    assert_eq!(waiting.failures, 6);
    handle.wake(1);
    assert_eq!(handle.snapshot(&1), Some(waiting));
    let until = (asked + Duration::from_secs(16)).into_std();
    assert_eq!(waiting.phase, Phase::BackingOff { until });
    handle.renew(1);
    let run = fixture.next().await;
    assert_eq!(asked.elapsed(), Duration::ZERO);
    assert_eq!(run.attempt.failures, 0);
    assert!(run.attempt.generation > waiting.generation);
    run.end(Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn changes_during_a_run_are_one_more_run() {
    let mut fixture = Fixture::new(4);
    let handle = fixture.reconciler.handle();
    handle.wake(1);
    let run = fixture.next().await;
    for _ in 0..10 {
        handle.wake(1);
    }
    assert_eq!(handle.snapshot(&1).map(|state| state.phase), Some(Phase::Running { again: true }));
    assert!(fixture.runs.try_recv().is_err(), "two runs of one key");
    assert!(!run.attempt.superseded.is_cancelled());
    run.end(Outcome::Done);
    let asked = Instant::now();
    fixture.next().await.end(Outcome::Done);
    assert_eq!(asked.elapsed(), Duration::ZERO);
    fixture.idle().await;
    fixture.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_that_was_woken_backs_off_and_one_that_was_renewed_does_not() {
    let mut fixture = Fixture::new(1);
    let handle = fixture.reconciler.handle();
    handle.wake(1);
    let run = fixture.next().await;
    handle.wake(1);
    run.end(Outcome::Retry);
    let asked = Instant::now();
    let run = fixture.next().await;
    assert_eq!(asked.elapsed(), Duration::from_millis(500));
    handle.renew(1);
    timeout(LIMIT, run.attempt.superseded.cancelled()).await.expect("the run is told");
    run.end(Outcome::Retry);
    let asked = Instant::now();
    let run = fixture.next().await;
    assert_eq!(asked.elapsed(), Duration::ZERO);
    assert_eq!(run.attempt.failures, 0);
    assert!(!run.attempt.superseded.is_cancelled());
    run.end(Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_key_is_not_retried() {
    let mut fixture = Fixture::new(1);
    let handle = fixture.reconciler.handle();
    handle.wake(1);
    handle.wake(2);
    let run = fixture.next().await;
    handle.wake(1);
    handle.forget(&1);
    handle.forget(&2);
    run.end(Outcome::Retry);
    fixture.idle().await;
    assert_eq!((handle.snapshot(&1), handle.snapshot(&2)), (None, None));
    fixture.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn keys_run_side_by_side_up_to_the_limit_and_first_come_first_served() {
    let mut fixture = Fixture::new(3);
    let handle = fixture.reconciler.handle();
    for key in 0..9 {
        handle.wake(key);
    }
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(fixture.next().await);
    }
    fixture.nothing_runs().await;
    // A busy key queues behind the keys that wait.
    handle.wake(0);
    let mut order: Vec<u32> = running.iter().map(|run| run.key).collect();
    while !running.is_empty() {
        running.remove(0).end(Outcome::Done);
        if order.len() < 10 {
            let run = fixture.next().await;
            order.push(run.key);
            running.push(run);
        }
    }
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    fixture.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_in_back_off_holds_up_no_other() {
    let mut fixture = Fixture::new(1);
    let handle = fixture.reconciler.handle();
    handle.wake(1);
    fixture.next().await.end(Outcome::Retry);
    fixture.idle().await;
    let asked = Instant::now();
    handle.wake(2);
    let run = fixture.next().await;
    assert_eq!((run.key, asked.elapsed()), (2, Duration::ZERO));
    run.end(Outcome::Done);
    assert_eq!(fixture.next().await.key, 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_one_key() {
    let mut fixture = Fixture::new(2);
    let handle = fixture.reconciler.handle();
    handle.wake(1);
    handle.wake(2);
    let (first, second) = (fixture.next().await, fixture.next().await);
    // Without an outcome the scripted run panics.
    drop(first.end);
    second.end(Outcome::Done);
    let asked = Instant::now();
    let run = fixture.next().await;
    assert_eq!((run.key, run.attempt.failures), (1, 1));
    assert_eq!(asked.elapsed(), Duration::from_millis(500));
    run.end(Outcome::Done);
    fixture.idle().await;
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_runs_and_starts_none() {
    let mut fixture = Fixture::new(1);
    let handle = fixture.reconciler.handle();
    handle.wake(1);
    handle.wake(2);
    let run = fixture.next().await;
    let mut drain = std::pin::pin!(fixture.reconciler.drain(Duration::from_secs(5)));
    assert!(timeout(Duration::from_secs(1), &mut drain).await.is_err(), "a run goes on");
    handle.wake(3);
    run.end(Outcome::Retry);
    assert_eq!(drain.await, [0; 0]);
    assert!(fixture.runs.recv().await.is_none(), "nothing ran after the drain");
    handle.wake(4);
    assert_eq!(handle.snapshot(&4), None);
    handle.idle().await;
}

#[tokio::test(start_paused = true)]
async fn drain_tells_the_patient_runs_and_aborts_the_deaf() {
    struct Listens(Arc<Semaphore>);
    impl Operation<&'static str> for Listens {
        async fn run(&self, key: &'static str, attempt: Attempt) -> Outcome {
            self.0.add_permits(1);
            match key {
                "listens" => attempt.superseded.cancelled().await,
                _ => std::future::pending().await,
            }
            Outcome::Retry
        }
    }
    let started = Arc::new(Semaphore::new(0));
    let reconciler = Reconciler::start(config(2), Listens(Arc::clone(&started)));
    let handle = reconciler.handle();
    handle.wake("listens");
    handle.wake("deaf");
    all(2, &started).await;
    let asked = Instant::now();
    assert_eq!(reconciler.drain(Duration::from_secs(5)).await, ["deaf"]);
    assert_eq!(asked.elapsed(), Duration::from_millis(5100));
    handle.idle().await;
}

#[tokio::test(start_paused = true)]
async fn dropping_aborts_every_run() {
    struct Guarded {
        started: Arc<Semaphore>,
        ended: Arc<Semaphore>,
    }
    struct Ends(Arc<Semaphore>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }
    impl Operation<u32> for Guarded {
        async fn run(&self, _: u32, _: Attempt) -> Outcome {
            let _ends = Ends(Arc::clone(&self.ended));
            self.started.add_permits(1);
            std::future::pending().await
        }
    }
    let (started, ended) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let operation = Guarded { started: Arc::clone(&started), ended: Arc::clone(&ended) };
    let reconciler = Reconciler::start(config(2), operation);
    let handle = reconciler.handle();
    handle.wake(1);
    handle.wake(2);
    all(2, &started).await;
    drop(reconciler);
    all(2, &ended).await;
    timeout(LIMIT, handle.idle()).await.expect("nobody waits for what was dropped");
}

/// Waits for this many signals from runs.
async fn all(runs: u32, signs: &Semaphore) {
    let given = timeout(LIMIT, signs.acquire_many(runs)).await;
    given.expect("signs within the limit").expect("an open semaphore").forget();
}

/// Under a real clock and real threads: never two runs of a key, and the last change always counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_change_always_counts() {
    #[derive(Default)]
    struct World {
        desired: [u32; 8],
        actual: [u32; 8],
        running: HashSet<usize>,
    }
    struct Follows(Arc<Mutex<World>>);
    impl Operation<usize> for Follows {
        async fn run(&self, key: usize, _: Attempt) -> Outcome {
            let desired = {
                let mut world = self.0.lock().unwrap();
                assert!(world.running.insert(key), "two runs of {key}");
                world.desired[key]
            };
            tokio::task::yield_now().await;
            let mut world = self.0.lock().unwrap();
            world.actual[key] = desired;
            world.running.remove(&key);
            Outcome::Done
        }
    }
    let world = Arc::new(Mutex::new(World::default()));
    let reconciler = Reconciler::start(config(4), Follows(Arc::clone(&world)));
    let handle = reconciler.handle();
    for change in 1..=20_000u32 {
        let key = change as usize % 8;
        world.lock().unwrap().desired[key] = change;
        if change % 3 == 0 {
            handle.renew(key);
        } else {
            handle.wake(key);
        }
        if change % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    timeout(Duration::from_secs(30), handle.idle()).await.expect("idle");
    let world = world.lock().unwrap();
    assert_eq!(world.desired, world.actual);
    assert!(world.running.is_empty());
}

/// The token can be passed on to the tasks of an operation.
#[tokio::test(start_paused = true)]
async fn superseded_reaches_what_the_operation_started() {
    struct Hands(mpsc::UnboundedSender<CancellationToken>);
    impl Operation<u32> for Hands {
        async fn run(&self, _: u32, attempt: Attempt) -> Outcome {
            self.0.send(attempt.superseded.child_token()).ok();
            attempt.superseded.cancelled().await;
            Outcome::Done
        }
    }
    let (sender, mut tokens) = mpsc::unbounded_channel();
    let reconciler = Reconciler::start(config(1), Hands(sender));
    let handle = reconciler.handle();
    handle.wake(1);
    let first = timeout(LIMIT, tokens.recv()).await.expect("in time").expect("a run");
    handle.renew(1);
    timeout(LIMIT, first.cancelled()).await.expect("the first run was told");
    let second = timeout(LIMIT, tokens.recv()).await.expect("in time").expect("a second run");
    assert!(!second.is_cancelled());
}
