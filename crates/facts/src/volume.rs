//! Names of volumes and of their attachments.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Name of the kubelet's CSI plugin, the prefix of CSI volumes in a node's status and of its error
/// texts.
pub const CSI_PLUGIN: &str = "kubernetes.io/csi";

/// Name of the VolumeAttachment of a volume on a node.
#[must_use]
pub fn attachment_name(volume_handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", hex_sha256(&[volume_handle, driver, node]))
}

/// Volume handle of a volume that is declared in a pod.
#[must_use]
pub fn inline_handle(pod_uid: &str, volume: &str) -> String {
    format!("csi-{}", hex_sha256(&[pod_uid, volume]))
}

/// Name of a PersistentVolume's volume in `volumesInUse` and `volumesAttached` of a node's status.
#[must_use]
pub fn unique_name(driver: &str, volume_handle: &str) -> String {
    format!("{CSI_PLUGIN}/{driver}^{volume_handle}")
}

/// Such a name for a volume that is declared in a pod.
#[must_use]
pub fn unique_inline_name(pod_uid: &str, volume: &str) -> String {
    format!("{CSI_PLUGIN}/{pod_uid}-{volume}")
}

/// Lower-case hexadecimal SHA-256 of the concatenated `parts`.
pub(crate) fn hex_sha256(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_are_named_after_volume_driver_and_node() {
        assert_eq!(
            attachment_name("vol1", "csi.example.com", "node-a"),
            "csi-9772fac5c4fa29c9d6f142eca6c0682216e647036bb6ce7cd0435d4e380ac5b0"
        );
    }

    #[test]
    fn inline_handles_are_named_after_pod_and_volume() {
        assert_eq!(
            inline_handle("pod-uid-1", "scratch"),
            "csi-c5699e390261e9e6987cb40a451a4e699b550c7b5f2b6574fc12407e6f10fb2f"
        );
    }

    #[test]
    fn unique_names_begin_with_the_plugin() {
        assert_eq!(
            unique_name("csi.example.com", "vol1"),
            "kubernetes.io/csi/csi.example.com^vol1"
        );
        assert_eq!(
            unique_inline_name("pod-uid-1", "scratch"),
            "kubernetes.io/csi/pod-uid-1-scratch"
        );
    }
}
