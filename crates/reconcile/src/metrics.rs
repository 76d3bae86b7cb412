//! Metrics of queues: client-go's `workqueue_*`, by the name of the queue.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::time::Instant;

use crate::queue::Tally;

/// The metrics of all queues of a registry. Clones share them.
#[derive(Clone, Debug)]
pub struct WorkqueueMetrics {
    depth: Family<Labels, Gauge>,
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    queued: Family<Labels, Histogram, fn() -> Histogram>,
    worked: Family<Labels, Histogram, fn() -> Histogram>,
    running: Running,
    pending: Pending,
}

/// The metrics of one queue. They outlive it: the next queue of the name continues their counts.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    queued: Histogram,
    worked: Histogram,
    name: Arc<str>,
    running: Running,
    pending: Pending,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    name: String,
}

impl WorkqueueMetrics {
    /// Registers the metrics, once per registry.
    pub fn register(registry: &mut Registry) -> Self {
        let times = || Family::new_with_constructor(histogram as fn() -> Histogram);
        let metrics = Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queued: times(),
            worked: times(),
            running: Running::default(),
            pending: Pending::default(),
        };
        registry.register("workqueue_depth", "Current depth of workqueue", metrics.depth.clone());
        registry.register(
            "workqueue_adds",
            "Total number of adds handled by workqueue",
            metrics.adds.clone(),
        );
        registry.register(
            "workqueue_retries",
            "Total number of retries handled by workqueue",
            metrics.retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long an item stays in workqueue before it is worked on",
            metrics.queued.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "How long an item from workqueue is worked on",
            metrics.worked.clone(),
        );
        registry.register_collector(Box::new(metrics.running.clone()));
        registry.register_collector(Box::new(metrics.pending.clone()));
        metrics
    }

    /// The metrics of the queue of this name.
    pub fn queue(&self, name: impl Into<String>) -> QueueMetrics {
        let labels = Labels { name: name.into() };
        self.running.lock().entry(labels.name.as_str().into()).or_default();
        QueueMetrics {
            depth: self.depth.get_or_create(&labels).clone(),
            adds: self.adds.get_or_create(&labels).clone(),
            retries: self.retries.get_or_create(&labels).clone(),
            queued: self.queued.get_or_create(&labels).clone(),
            worked: self.worked.get_or_create(&labels).clone(),
            name: labels.name.into(),
            running: self.running.clone(),
            pending: self.pending.clone(),
        }
    }
}

/// client-go's buckets: 10 ns to 10 s.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(10e-9, 10.0, 10))
}

impl QueueMetrics {
    /// `depth` is what it was before and what it is now: queues that share a name add up.
    pub(crate) fn measure(&self, depth: (usize, usize), Tally { adds, retries }: Tally) {
        let [before, now] =
            [depth.0, depth.1].map(|depth| i64::try_from(depth).unwrap_or(i64::MAX));
        self.depth.inc_by(now - before);
        self.adds.inc_by(adds);
        self.retries.inc_by(retries);
    }

    /// Exports the age of the oldest pending key of `queue` while the queue lives.
    pub(crate) fn count(&self, queue: Weak<dyn Oldest>) {
        let mut queues = self.pending.lock();
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        queues.push((Arc::clone(&self.name), queue));
    }

    /// Starts the timer of a run, whose key was queued for `waited`.
    pub(crate) fn begin(&self, waited: Duration) -> Work {
        self.queued.observe(waited.as_secs_f64());
        let began = Instant::now();
        let mut running = self.running.lock();
        let starts = running.entry(Arc::clone(&self.name)).or_default();
        let number = starts.last().map_or(0, |(_, last)| last + 1);
        starts.insert((began, number));
        drop(running);
        Work { metrics: self.clone(), began, number }
    }
}

/// The timer of a run, which observes its duration when dropped.
#[derive(Debug)]
pub(crate) struct Work {
    metrics: QueueMetrics,
    began: Instant,
    number: u64,
}

impl Drop for Work {
    fn drop(&mut self) {
        let QueueMetrics { worked, running, name, .. } = &self.metrics;
        worked.observe(self.began.elapsed().as_secs_f64());
        if let Some(starts) = running.lock().get_mut(name) {
            starts.remove(&(self.began, self.number));
        }
    }
}

/// When the runs of each queue began, told apart by a number.
#[derive(Clone, Debug, Default)]
struct Running(Arc<Mutex<Starts>>);

type Starts = BTreeMap<Arc<str>, BTreeSet<(Instant, u64)>>;

impl Running {
    fn lock(&self) -> MutexGuard<'_, Starts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// These grow while nothing happens, so they are computed when they are collected.
impl Collector for Running {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = Instant::now();
        let times: Vec<(String, f64, f64)> = self
            .lock()
            .iter()
            .map(|(name, starts)| {
                let ages = || starts.iter().map(|(began, _)| (now - *began).as_secs_f64());
                let sum = ages().fold(0.0, |sum, age| sum + age);
                (name.to_string(), sum, ages().next().unwrap_or_default())
            })
            .collect();
        let mut gauge = |name, help, value: fn(&(String, f64, f64)) -> f64| {
            let kind = ConstGauge::new(0f64).metric_type();
            let mut encoder = encoder.encode_descriptor(name, help, None, kind)?;
            for time in &times {
                let labels = [("name", time.0.as_str())];
                ConstGauge::new(value(time)).encode(encoder.encode_family(&labels)?)?;
            }
            fmt::Result::Ok(())
        };
        gauge(
            "workqueue_unfinished_work_seconds",
            "How many seconds of work are in progress and not in work_duration yet",
            |(_, sum, _)| *sum,
        )?;
        gauge(
            "workqueue_longest_running_processor_seconds",
            "How many seconds the longest running work of workqueue has been running",
            |(.., longest)| *longest,
        )
    }
}

/// A queue that can say since when its oldest key is pending.
pub(crate) trait Oldest: Send + Sync {
    fn oldest(&self) -> Option<Instant>;
}

/// The queues that exist, by name.
#[derive(Clone, Default)]
struct Pending(Arc<Mutex<Queues>>);

type Queues = Vec<(Arc<str>, Weak<dyn Oldest>)>;

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl Collector for Pending {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = Instant::now();
        let mut ages: BTreeMap<Arc<str>, f64> = BTreeMap::new();
        for (name, queue) in self.lock().iter() {
            let oldest = queue.upgrade().and_then(|queue| queue.oldest());
            let age = oldest.map_or(0.0, |since| now.duration_since(since).as_secs_f64());
            let known = ages.entry(Arc::clone(name)).or_default();
            *known = known.max(age);
        }
        let mut encoder = encoder.encode_descriptor(
            "wharf_oldest_pending_seconds",
            "Age of the object that has been queued, running or backing off longest, in seconds",
            None,
            ConstGauge::new(0f64).metric_type(),
        )?;
        for (name, age) in &ages {
            ConstGauge::new(*age).encode(encoder.encode_family(&[("name", &**name)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::{Attempt, Backoff, Config, Operation, Outcome, Reconciler};

    /// Fails for keys above 0.
    struct Refused;

    impl Operation<u8> for Refused {
        async fn run(&self, key: u8, _: Attempt) -> Outcome {
            if key == 0 { Outcome::Done } else { Outcome::RetryAfter(Duration::from_secs(3)) }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_never_done_gets_older() {
        let mut registry = Registry::default();
        let metrics = Some(WorkqueueMetrics::register(&mut registry).queue("a"));
        let config = Config { name: "a", parallelism: 1, backoff: Backoff::KUBELET, metrics };
        let keys = Reconciler::start(config, Refused);
        let shown = async |age: &str| {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let line = format!("wharf_oldest_pending_seconds{{name=\"a\"}} {age}\n");
            assert!(text.contains(&line), "{line}: {text}");
        };
        keys.handle().wake(0);
        shown("0.0").await;
        keys.handle().wake(1);
        shown("10.0").await;
        keys.handle().wake(2);
        shown("20.0").await;
        keys.handle().forget(&1);
        shown("20.0").await;
        drop(keys);
        shown("0.0").await;
    }

    #[tokio::test(start_paused = true)]
    async fn queues_are_counted_and_timed_under_the_names_of_client_go() {
        let mut registry = Registry::default();
        let metrics = WorkqueueMetrics::register(&mut registry);
        let queue = metrics.queue("a");
        queue.measure((0, 2), Tally { adds: 3, retries: 1 });
        let (first, second) =
            (queue.begin(Duration::from_millis(500)), queue.begin(Duration::ZERO));
        tokio::time::advance(Duration::from_secs(2)).await;
        drop(first);
        let third = queue.begin(Duration::ZERO);
        tokio::time::advance(Duration::from_secs(1)).await;
        let text = |registry: &Registry| {
            let mut text = String::new();
            encode(&mut text, registry).unwrap();
            text
        };
        let busy = text(&registry);
        for line in [
            "workqueue_depth{name=\"a\"} 2",
            "workqueue_adds_total{name=\"a\"} 3",
            "workqueue_retries_total{name=\"a\"} 1",
            "workqueue_queue_duration_seconds_sum{name=\"a\"} 0.5",
            "workqueue_queue_duration_seconds_count{name=\"a\"} 3",
            "workqueue_work_duration_seconds_sum{name=\"a\"} 2.0",
            "workqueue_unfinished_work_seconds{name=\"a\"} 4.0",
            "workqueue_longest_running_processor_seconds{name=\"a\"} 3.0",
        ] {
            assert!(busy.contains(line), "{line}: {busy}");
        }
        drop((second, third));
        let idle = "workqueue_unfinished_work_seconds{name=\"a\"} 0.0";
        assert!(text(&registry).contains(idle));
    }
}
