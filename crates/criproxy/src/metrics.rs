//! What a proxy counts.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};
use tokio::sync::watch;
use tonic::Code;
use wharf_uds::{Clients, LinkState, code_name};

/// Callers choose the names of methods, so how many are told apart is bounded. CRI has some fifty,
/// in each of its two versions.
const METHODS: usize = 256;
const LONGEST_METHOD: usize = 128;
const OTHER: &str = "other";

const BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];

/// Calls by method and code. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct CallMetrics {
    methods: Arc<Mutex<HashSet<String>>>,
    calls: Family<Ended, Counter>,
    in_flight: Gauge,
    seconds: Family<Method, Histogram, fn() -> Histogram>,
}

impl Default for CallMetrics {
    fn default() -> Self {
        Self {
            methods: Arc::default(),
            calls: Family::default(),
            in_flight: Gauge::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}

impl CallMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "wharf_proxy_calls",
            "Calls that were carried to the runtime or answered for it, by method and code",
            self.calls.clone(),
        );
        registry.register(
            "wharf_proxy_calls_in_flight",
            "Calls that have not ended",
            self.in_flight.clone(),
        );
        registry.register(
            "wharf_proxy_call_seconds",
            "Time from a call's headers to its end, by method",
            self.seconds.clone(),
        );
    }

    /// Counts a call from now on, until what is returned is finished; dropped before, the call was
    /// cut.
    pub(crate) fn start(&self, method: &str) -> CountedCall {
        self.in_flight.inc();
        CountedCall {
            metrics: self.clone(),
            method: self.label(method),
            started: Instant::now(),
            code: Code::Cancelled,
        }
    }

    fn label(&self, method: &str) -> String {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        if !methods.contains(method) {
            if methods.len() == METHODS || method.len() > LONGEST_METHOD {
                return OTHER.to_owned();
            }
            methods.insert(method.to_owned());
        }
        method.to_owned()
    }
}

pub(crate) struct CountedCall {
    metrics: CallMetrics,
    method: String,
    started: Instant,
    code: Code,
}

impl CountedCall {
    pub(crate) fn finish(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        let method = std::mem::take(&mut self.method);
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.in_flight.dec();
        self.metrics.seconds.get_or_create(&Method { method: method.clone() }).observe(seconds);
        let ended = Ended { method, code: code_name(self.code) };
        self.metrics.calls.get_or_create(&ended).inc();
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Method {
    method: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Ended {
    method: String,
    code: &'static str,
}

/// Whether there is a connection to the runtime, at the time of asking.
#[derive(Debug)]
pub(crate) struct RuntimeConnected(pub(crate) watch::Receiver<LinkState>);

impl Collector for RuntimeConnected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let connected =
            ConstGauge::new(i64::from(matches!(*self.0.borrow(), LinkState::Connected { .. })));
        let encoder = encoder.encode_descriptor(
            "wharf_proxy_runtime_connected",
            "Whether there is a connection to the runtime",
            None,
            connected.metric_type(),
        )?;
        connected.encode(encoder)
    }
}

/// The calls that clients gave up while the runtime worked on them.
#[derive(Debug)]
pub(crate) struct GivenUp(pub(crate) Clients);

impl Collector for GivenUp {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counters = [
            (
                "wharf_proxy_calls_given_up",
                "Calls that clients gave up after they were passed to the runtime, and before they were answered in full",
                self.0.given_up(),
            ),
            (
                "wharf_proxy_client_restraints",
                "Times that a client process was restrained because it gave up too many calls",
                self.0.restraints(),
            ),
        ];
        for (name, help, count) in counters {
            let counter = ConstCounter::new(count);
            let encoder = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(encoder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_flood_of_names_stays_bounded_and_is_counted() {
        let metrics = CallMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        for number in 0..METHODS + 10 {
            metrics.start(&format!("/a.B/{number}")).finish(Code::Ok);
        }
        metrics.start(&"x".repeat(LONGEST_METHOD + 1)).finish(Code::Ok);
        drop(metrics.start("/a.B/1"));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "wharf_proxy_calls_total{method=\"/a.B/0\",code=\"OK\"} 1",
            "wharf_proxy_calls_total{method=\"/a.B/1\",code=\"Canceled\"} 1",
            "wharf_proxy_calls_total{method=\"other\",code=\"OK\"} 11",
            "wharf_proxy_calls_in_flight 0",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
    }
}
