//! Leases by which replicas of a controller elect a leader. Upstream's replicas and ours must use
//! the same names.

use crate::sanitise::sanitised;

/// Lease of the snapshot controller, one in a cluster.
pub const SNAPSHOT_CONTROLLER: &str = "snapshot-controller-leader";

/// Lease of the attacher of `driver`.
#[must_use]
pub fn attacher(driver: &str) -> String {
    sanitised(&format!("external-attacher-leader-{driver}"))
}

/// Lease of the provisioner of `driver`.
#[must_use]
pub fn provisioner(driver: &str) -> String {
    sanitised(driver)
}

/// Lease of the resizer of `driver`.
#[must_use]
pub fn resizer(driver: &str) -> String {
    sanitised(&format!("external-resizer-{driver}"))
}

/// Lease of the snapshotter of `driver`.
#[must_use]
pub fn snapshotter(driver: &str) -> String {
    sanitised(&format!("external-snapshotter-leader-{driver}"))
}

/// The host name of a replica, as it is written into a Lease.
#[must_use]
pub fn host(host: &str) -> String {
    sanitised(host)
}

#[cfg(test)]
mod tests {
    #[test]
    fn leases_are_those_of_the_upstream_sidecars() {
        let driver = "csi.example.com";
        assert_eq!(super::attacher(driver), "external-attacher-leader-csi-example-com");
        assert_eq!(super::provisioner(driver), "csi-example-com");
        assert_eq!(super::resizer(driver), "external-resizer-csi-example-com");
        assert_eq!(super::snapshotter(driver), "external-snapshotter-leader-csi-example-com");
        assert_eq!(super::attacher("a."), "external-attacher-leader-a-X");
        assert_eq!(super::host("node-1.example.com"), "node-1-example-com");
    }
}
