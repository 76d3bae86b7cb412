//! The duration metric of calls.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};
use tonic::Code;
use wharf_uds::code_name;

const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0];

/// The histogram `csi_driver_operations_seconds`, by method and code.
#[derive(Clone, Debug)]
pub struct DriverMetrics {
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
}

impl DriverMetrics {
    /// Registers the histogram. Call it once per registry.
    pub fn register(registry: &mut Registry) -> Self {
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        registry.register(
            "csi_driver_operations_seconds",
            "Duration of calls to this CSI driver by method and gRPC code",
            seconds.clone(),
        );
        Self { seconds }
    }

    pub(crate) fn observe(&self, method: &'static str, code: Code, duration: Duration) {
        let labels = Labels { method, grpc_status_code: code_name(code) };
        self.seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    method: &'static str,
    grpc_status_code: &'static str,
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}
