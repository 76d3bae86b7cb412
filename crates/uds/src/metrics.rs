//! The histogram of calls that CSI sidecars publish.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};
use tonic::Code;

const BUCKETS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// The label of calls made before the driver's name is known.
const UNKNOWN_DRIVER: &str = "unknown-driver";

/// `csi_sidecar_operations_seconds`, by driver, method and code.
#[derive(Clone, Debug)]
pub struct RpcMetrics {
    driver: String,
    seconds: Family<Labels, Histogram, fn() -> Histogram>,
}

impl RpcMetrics {
    /// Registers the histogram. Once per registry; [`for_driver`](RpcMetrics::for_driver) gives
    /// the same histogram under the name of a driver.
    pub fn register(registry: &mut Registry) -> Self {
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        registry.register(
            "csi_sidecar_operations_seconds",
            "Container Storage Interface operation duration with gRPC error code status total",
            seconds.clone(),
        );
        Self { driver: UNKNOWN_DRIVER.to_owned(), seconds }
    }

    /// The same histogram for calls to the driver of this name.
    #[must_use]
    pub fn for_driver(&self, name: impl Into<String>) -> RpcMetrics {
        RpcMetrics { driver: name.into(), seconds: self.seconds.clone() }
    }

    /// Counts a finished call. `method` is the full path, as in `/csi.v1.Node/NodeGetInfo`.
    pub fn observe(&self, method: &str, code: Code, duration: Duration) {
        let labels = Labels {
            driver_name: self.driver.clone(),
            method_name: method.to_owned(),
            grpc_status_code: code_name(code),
        };
        self.seconds.get_or_create(&labels).observe(duration.as_secs_f64());
    }
}

/// The name of a code as Go prints it, which is how metrics and logs of Kubernetes show it.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    driver_name: String,
    method_name: String,
    grpc_status_code: &'static str,
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exposition_has_the_upstream_names() {
        let mut registry = Registry::default();
        let metrics = RpcMetrics::register(&mut registry);
        metrics.observe("/csi.v1.Identity/Probe", Code::DeadlineExceeded, Duration::from_secs(3));
        metrics.for_driver("d.example").observe(
            "/csi.v1.Node/NodeGetInfo",
            Code::Ok,
            Duration::ZERO,
        );
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();

        for line in [
            "# TYPE csi_sidecar_operations_seconds histogram",
            "csi_sidecar_operations_seconds_bucket{le=\"2.5\",driver_name=\"unknown-driver\",\
             method_name=\"/csi.v1.Identity/Probe\",grpc_status_code=\"DeadlineExceeded\"} 0",
            "csi_sidecar_operations_seconds_bucket{le=\"5.0\",driver_name=\"unknown-driver\",\
             method_name=\"/csi.v1.Identity/Probe\",grpc_status_code=\"DeadlineExceeded\"} 1",
            "csi_sidecar_operations_seconds_count{driver_name=\"d.example\",\
             method_name=\"/csi.v1.Node/NodeGetInfo\",grpc_status_code=\"OK\"} 1",
            "csi_sidecar_operations_seconds_sum{driver_name=\"d.example\",\
             method_name=\"/csi.v1.Node/NodeGetInfo\",grpc_status_code=\"OK\"} 0.0",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        let buckets = text.lines().filter(|line| line.contains("_bucket{")).count();
        assert_eq!(buckets, 2 * (BUCKETS.len() + 1));
    }
}
