//! Dynamic resource allocation, kubelet to driver.

/// `k8s.io.kubelet.pkg.apis.dra.v1`.
pub mod v1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");

    /// How a driver that serves this names it in its registration.
    pub const SERVICE: &str = "v1.DRAPlugin";
}

/// `k8s.io.kubelet.pkg.apis.dra.v1beta1`.
pub mod v1beta1 {
    tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1beta1");

    /// How a driver that serves this names it in its registration.
    pub const SERVICE: &str = "v1beta1.DRAPlugin";
}
