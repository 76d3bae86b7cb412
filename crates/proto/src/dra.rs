//! Dynamic resource allocation: the kubelet's calls to a DRA driver.

/// `k8s.io.kubelet.pkg.apis.dra.v1`.
pub mod v1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");

    /// Name of this service in a driver's registration.
    pub const SERVICE: &str = "v1.DRAPlugin";
}

/// `k8s.io.kubelet.pkg.apis.dra.v1beta1`.
pub mod v1beta1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1beta1");

    /// Name of this service in a driver's registration.
    pub const SERVICE: &str = "v1beta1.DRAPlugin";
}
