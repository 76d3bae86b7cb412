//! Device plugins (`v1beta1`).

tonic::include_proto!("v1beta1");

/// The only version of this API in use.
pub const VERSION: &str = "v1beta1";
/// [`Device::health`] of a device that can be allocated.
pub const HEALTHY: &str = "Healthy";
/// [`Device::health`] of a device that cannot be allocated.
pub const UNHEALTHY: &str = "Unhealthy";
