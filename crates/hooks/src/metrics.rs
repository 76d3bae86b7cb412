//! Metrics of hooks.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};
use tonic::Code;
use wharf_uds::code_name;

use crate::HookPoint;

/// The proxy waits for two seconds at most.
const BUCKETS: [f64; 11] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 2.0];

/// `wharf_hook_server_seconds`, by hook and code.
#[derive(Clone, Debug)]
pub struct HookMetrics {
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
}

impl HookMetrics {
    /// Registers the histogram, once per registry.
    pub fn register(registry: &mut Registry) -> Self {
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        registry.register(
            "wharf_hook_server_seconds",
            "Duration of the hooks that this server answered, by hook and gRPC code",
            seconds.clone(),
        );
        Self { seconds }
    }

    pub(crate) fn observe(&self, point: HookPoint, code: Code, duration: Duration) {
        let labels = Labels { hook: point.name(), grpc_status_code: code_name(code) };
        self.seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    hook: &'static str,
    grpc_status_code: &'static str,
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}
