//! Paths of the kubelet's sockets and volumes.

use std::path::{Path, PathBuf};

use crate::volume::hex_sha256;

/// The kubelet's default root folder.
pub const KUBELET_ROOT: &str = "/var/lib/kubelet";
/// Folder of device-plugin sockets: constant, whatever the kubelet's root folder is.
pub const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins";
/// File name of the kubelet's own socket in [`DEVICE_PLUGINS`].
pub const DEVICE_PLUGIN_SOCKET: &str = "kubelet.sock";
/// File in which the kubelet records the volume that a folder belongs to.
pub const VOLUME_DATA: &str = "vol_data.json";

/// A kubelet's root folder, and the paths below it.
///
/// Volumes are named by their PersistentVolume, or by their name in the pod if they are declared in
/// the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletRoot(PathBuf);

impl KubeletRoot {
    /// The paths below the root folder `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Folder in which plugins put their registration sockets.
    #[must_use]
    pub fn plugins_registry(&self) -> PathBuf {
        self.0.join("plugins_registry")
    }

    /// Folder that plugins share with the kubelet; a driver's own socket is in `<driver>/` below
    /// it.
    #[must_use]
    pub fn plugins(&self) -> PathBuf {
        self.0.join("plugins")
    }

    /// Staging path of a file-system volume, next to its [`VOLUME_DATA`].
    #[must_use]
    pub fn staging(&self, driver: &str, volume_handle: &str) -> PathBuf {
        self.csi().join(driver).join(hex_sha256(&[volume_handle])).join("globalmount")
    }

    /// Folder of a pod's file-system volume; it holds [`VOLUME_DATA`] and the target.
    #[must_use]
    pub fn pod_volume(&self, pod_uid: &str, volume: &str) -> PathBuf {
        self.pod(pod_uid).join("volumes/kubernetes.io~csi").join(escaped(volume))
    }

    /// Target path of a file-system volume in a pod.
    #[must_use]
    pub fn target(&self, pod_uid: &str, volume: &str) -> PathBuf {
        self.pod_volume(pod_uid, volume).join("mount")
    }

    /// Folder in which a block volume is staged.
    #[must_use]
    pub fn block_staging(&self, volume: &str) -> PathBuf {
        self.volume_devices().join("staging").join(volume)
    }

    /// Target path of a block volume for a pod: a file that the driver makes.
    #[must_use]
    pub fn block_target(&self, volume: &str, pod_uid: &str) -> PathBuf {
        self.volume_devices().join("publish").join(volume).join(pod_uid)
    }

    /// Folder of a block volume's [`VOLUME_DATA`].
    #[must_use]
    pub fn block_data(&self, volume: &str) -> PathBuf {
        self.volume_devices().join(escaped(volume)).join("data")
    }

    /// File that a block volume's device is bind-mounted over, one per pod.
    #[must_use]
    pub fn block_device(&self, volume: &str, pod_uid: &str) -> PathBuf {
        self.volume_devices().join(escaped(volume)).join("dev").join(pod_uid)
    }

    /// Symlink from a pod's folder to its published block volume.
    #[must_use]
    pub fn pod_block_link(&self, pod_uid: &str, volume: &str) -> PathBuf {
        self.pod(pod_uid).join("volumeDevices/kubernetes.io~csi").join(volume)
    }

    fn pod(&self, uid: &str) -> PathBuf {
        self.0.join("pods").join(uid)
    }

    fn csi(&self) -> PathBuf {
        self.plugins().join("kubernetes.io/csi")
    }

    fn volume_devices(&self) -> PathBuf {
        self.csi().join("volumeDevices")
    }
}

/// A name, escaped for use as a part of a path.
fn escaped(name: &str) -> String {
    name.replace('/', "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_kubelet() {
        let root = KubeletRoot::new("/k");
        for (path, expected) in [
            (
                root.staging("csi.example.com", "vol1"),
                "/k/plugins/kubernetes.io/csi/csi.example.com/\
                 af1f1ed4cf362d576cb22ce9e3e2dcba2733cbde8ab5ae181d2b82d2b1274b66/globalmount",
            ),
            (root.plugins_registry(), "/k/plugins_registry"),
            (root.plugins(), "/k/plugins"),
            (root.pod_volume("uid", "a/b"), "/k/pods/uid/volumes/kubernetes.io~csi/a~b"),
            (root.target("uid", "pv-1"), "/k/pods/uid/volumes/kubernetes.io~csi/pv-1/mount"),
            (root.block_staging("pv-1"), "/k/plugins/kubernetes.io/csi/volumeDevices/staging/pv-1"),
            (
                root.block_target("pv-1", "uid"),
                "/k/plugins/kubernetes.io/csi/volumeDevices/publish/pv-1/uid",
            ),
            (root.block_data("pv-1"), "/k/plugins/kubernetes.io/csi/volumeDevices/pv-1/data"),
            (
                root.block_device("pv-1", "uid"),
                "/k/plugins/kubernetes.io/csi/volumeDevices/pv-1/dev/uid",
            ),
            (
                root.pod_block_link("uid", "pv-1"),
                "/k/pods/uid/volumeDevices/kubernetes.io~csi/pv-1",
            ),
        ] {
            assert_eq!(path, Path::new(expected));
        }
    }
}
