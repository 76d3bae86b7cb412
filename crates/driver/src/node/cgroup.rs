//! Applies I/O limits of a volume's device in the cgroups of its pods.
//!
//! A limit applies to one device in one cgroup. cgroup v2 limits a whole subtree at its root.
//! cgroup v1 limits only the cgroup itself, so each cgroup below the pod's gets the limits, and v1
//! counts only I/O that a process issues itself (direct I/O, reads and syncs), not writeback by the
//! kernel.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::limits::{Limit, Limits};

/// Maximum depth of a pod's cgroup below the root: `kubepods/burstable/pod<uid>`, and levels of the
/// container runtime above.
const DEPTH: usize = 6;

/// The cgroups of a node.
#[derive(Clone, Debug)]
pub struct Cgroups {
    root: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// `blkio.throttle.*`.
    One,
    /// `io.max`.
    Two,
}

impl Cgroups {
    /// Finds the cgroups below `root`, the mount of cgroup v2, of v1's blkio controller, or the
    /// folder that contains it.
    pub fn new(root: &Path) -> Self {
        if root.join("cgroup.controllers").exists() {
            return Self { root: root.to_owned(), version: Version::Two };
        }
        let blkio = root.join("blkio");
        let root = if blkio.is_dir() { blkio } else { root.to_owned() };
        Self { root, version: Version::One }
    }

    /// Limits `device` for a pod. Returns the cgroups that have the limits; empty if the pod has no
    /// cgroup yet.
    ///
    /// # Errors
    /// If an existing cgroup cannot be written.
    pub fn apply(
        &self,
        pod_uid: &str,
        device: (u32, u32),
        limits: &Limits,
    ) -> io::Result<Vec<PathBuf>> {
        let mut limited = Vec::new();
        for pod in self.pods(pod_uid) {
            let groups = match self.version {
                Version::One => subtree(&pod),
                Version::Two => vec![pod],
            };
            for group in groups {
                match self.write(&group, device, limits) {
                    Ok(()) => limited.push(group),
                    // The container ended meanwhile.
                    Err(_) if !group.exists() => {}
                    Err(error) => {
                        return Err(io::Error::new(
                            error.kind(),
                            format!("{}: {error}", group.display()),
                        ));
                    }
                }
            }
        }
        Ok(limited)
    }

    /// Whether a limit applies to one cgroup only, so that each cgroup of a pod needs it.
    pub(super) fn limits_each(&self) -> bool {
        self.version == Version::One
    }

    /// Returns the cgroups of a pod and its containers.
    pub(super) fn groups(&self, pod_uid: &str) -> Vec<PathBuf> {
        self.pods(pod_uid).iter().flat_map(|pod| subtree(pod)).collect()
    }

    fn write(&self, group: &Path, (major, minor): (u32, u32), limits: &Limits) -> io::Result<()> {
        match self.version {
            Version::One => Limit::ALL.into_iter().try_for_each(|limit| {
                // Zero removes the limit.
                let value = limits.get(limit).unwrap_or(0);
                fs::write(group.join(version_one_file(limit)), format!("{major}:{minor} {value}"))
            }),
            Version::Two => fs::write(group.join("io.max"), format!("{major}:{minor} {limits}")),
        }
    }

    /// Finds the cgroups of a pod, in both naming schemes of the kubelet.
    fn pods(&self, uid: &str) -> Vec<PathBuf> {
        let plain = format!("pod{uid}");
        let systemd = format!("pod{}.slice", uid.replace('-', "_"));
        let mut found = Vec::new();
        let mut level = vec![self.root.clone()];
        for _ in 0..DEPTH {
            let mut below = Vec::new();
            for folder in level.iter().flat_map(|folder| folders(folder)) {
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                if name == plain || name.ends_with(&systemd) {
                    found.push(folder);
                } else {
                    below.push(folder);
                }
            }
            if !found.is_empty() {
                break;
            }
            level = below;
        }
        found
    }
}

fn version_one_file(limit: Limit) -> &'static str {
    match limit {
        Limit::Riops => "blkio.throttle.read_iops_device",
        Limit::Wiops => "blkio.throttle.write_iops_device",
        Limit::Rbps => "blkio.throttle.read_bps_device",
        Limit::Wbps => "blkio.throttle.write_bps_device",
    }
}

fn subtree(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_owned()];
    let mut next = 0;
    while next < all.len() {
        let below = folders(&all[next]);
        all.extend(below);
        next += 1;
    }
    all
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(root: &Path, version_two: bool, groups: &[&str]) {
        for group in groups {
            fs::create_dir_all(root.join(group)).expect("folder");
        }
        if version_two {
            fs::write(root.join("cgroup.controllers"), "io").expect("file");
        }
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    const LIMITS: Limits = Limits { riops: Some(10), wiops: None, rbps: Some(1024), wbps: None };

    #[test]
    fn version_two_limits_the_pod() {
        let root = tempfile::tempdir().expect("folder");
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podab_cd.slice";
        tree(root.path(), true, &[pod, &format!("{pod}/cri-1.scope")]);
        let limited = Cgroups::new(root.path()).apply("ab-cd", (7, 3), &LIMITS).expect("written");
        assert_eq!(limited, [root.path().join(pod)]);
        assert_eq!(
            text(&root.path().join(pod).join("io.max")),
            "7:3 riops=10 wiops=max rbps=1024 wbps=max"
        );
    }

    #[test]
    fn version_one_limits_each_container_too() {
        let root = tempfile::tempdir().expect("folder");
        let pod = "blkio/kubepods/besteffort/podab-cd";
        tree(root.path(), false, &[&format!("{pod}/container"), "blkio/kubepods/podother"]);
        let limited = Cgroups::new(root.path()).apply("ab-cd", (7, 3), &LIMITS).expect("written");
        assert_eq!(limited.len(), 2);
        let file = root.path().join(pod).join("container/blkio.throttle.read_iops_device");
        assert_eq!(text(&file), "7:3 10");
        assert_eq!(text(&root.path().join(pod).join("blkio.throttle.write_bps_device")), "7:3 0");
        assert!(
            !root.path().join("blkio/kubepods/podother/blkio.throttle.read_iops_device").exists()
        );
    }

    #[test]
    fn a_pod_without_a_cgroup_limits_nothing() {
        let root = tempfile::tempdir().expect("folder");
        tree(root.path(), true, &["kubepods/podother"]);
        let limited =
            Cgroups::new(root.path()).apply("ab-cd", (7, 3), &LIMITS).expect("nothing to do");
        assert!(limited.is_empty());
    }
}
