//! ConfigMap volumes, whose folders have mode 0777 although only root can write to them.
//!
//! The kubelet gives every volume that it fills itself mode 0777, and keeps it below a folder that
//! only root may enter. Into containers it mounts a ConfigMap read-only. So a folder of that mode
//! is as safe as one of mode 0755 if both facts are visible: it is a mount of its own, read-only,
//! of a folder `pods/UID/volumes/kubernetes.io~configmap/NAME`. A read-only mount alone is not
//! enough: others may write to the same folder through another mount.

use std::{
    ffi::OsStr,
    fs,
    path::{Component, Path},
};

use wharf_mount::mountinfo;

/// The parent folder of ConfigMap volumes in a pod's folder.
const PLUGIN: &str = "kubernetes.io~configmap";

/// Whether a folder is a ConfigMap volume that the kubelet mounted. Blocks.
pub(super) fn is_config_map(folder: &Path) -> bool {
    let Ok(folder) = fs::canonicalize(folder) else { return false };
    let Ok(Some(mount)) = mountinfo::at(&folder) else { return false };
    // The options of the filesystem do not count: the same folder may be mounted a second time.
    mount.options.iter().any(|option| option == "ro") && is_volume(&mount.root)
}

/// Whether a path ends in `pods/UID/volumes/kubernetes.io~configmap/NAME`.
fn is_volume(path: &Path) -> bool {
    let mut parts = path.components().rev();
    let mut next = || match parts.next() {
        Some(Component::Normal(part)) => Some(part),
        _ => None,
    };
    let (name, plugin, volumes, uid, pods) = (next(), next(), next(), next(), next());
    let is = |part: Option<&OsStr>, wanted: &str| part.is_some_and(|it| it == wanted);
    name.is_some()
        && is(plugin, PLUGIN)
        && is(volumes, "volumes")
        && uid.is_some()
        && is(pods, "pods")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_by_their_place() {
        for (path, expected) in [
            ("/var/lib/kubelet/pods/1f/volumes/kubernetes.io~configmap/hooks", true),
            ("/pods/1f/volumes/kubernetes.io~configmap/hooks", true),
            ("/pods/1f/volumes/kubernetes.io~configmap", false),
            ("/pods/1f/volumes/kubernetes.io~empty-dir/hooks", false),
            ("/pods/1f/volumes/kubernetes.io~configmap/hooks/sub", false),
            ("/tmp/volumes/kubernetes.io~configmap/hooks", false),
            ("/", false),
        ] {
            assert_eq!(is_volume(Path::new(path)), expected, "{path}");
        }
    }
}
