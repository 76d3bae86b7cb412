//! Finds the users of a loop device in `/proc`.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// Maximum number of processes to name per kind.
const MAX_NAMED: usize = 3;

/// Users of a device: one process per mount namespace in which it is mounted, and the processes
/// that have it open.
///
/// For messages to people. Processes of other pods are visible only if this process sees the node's
/// processes (`hostPID`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Mount points in this process's mount namespace.
    mounts: Vec<PathBuf>,
    /// One process of each other mount namespace in which the device is mounted.
    namespaces: Vec<Process>,
    /// Processes that have the device open.
    openers: Vec<Process>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    name: String,
}

/// Returns the users of `/dev/loop<number>`.
pub fn of_device(number: u32) -> Holders {
    let mut holders =
        Holders { mounts: mounts("/proc/self/mountinfo", number), ..Default::default() };
    let mut seen: Vec<_> = fs::read_link("/proc/self/ns/mnt").into_iter().collect();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let folder = entry.path();
        // Skip kernel threads: they have no executable and do not use devices.
        if id == std::process::id() || fs::read_link(folder.join("exe")).is_err() {
            continue;
        }
        let process = || Process { id, name: name(&folder) };
        if holders.openers.len() < MAX_NAMED && has_open(&folder, number) {
            holders.openers.push(process());
        }
        let Ok(namespace) = fs::read_link(folder.join("ns/mnt")) else { continue };
        if holders.namespaces.len() < MAX_NAMED && !seen.contains(&namespace) {
            seen.push(namespace);
            if !mounts(folder.join("mountinfo"), number).is_empty() {
                holders.namespaces.push(process());
            }
        }
    }
    holders
}

/// Mount points in a mountinfo table at which the device, or its node, is mounted.
fn mounts(table: impl AsRef<Path>, number: u32) -> Vec<PathBuf> {
    points(&fs::read_to_string(table).unwrap_or_default(), number)
}

fn points(table: &str, number: u32) -> Vec<PathBuf> {
    let (device, node) = (format!("7:{number}"), format!("/loop{number}"));
    let shows = |line: &&str| {
        let mut fields = line.split(' ').skip(2);
        fields.next() == Some(&device) || fields.next() == Some(&node)
    };
    table
        .lines()
        .filter(shows)
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .collect()
}

/// Whether a process has the device open.
fn has_open(process: &Path, number: u32) -> bool {
    let node = format!("/dev/loop{number}");
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| target == Path::new(&node))
}

fn name(folder: &Path) -> String {
    fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_owned()
}

impl fmt::Display for Holders {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |processes: &[Process]| {
            let known: Vec<_> =
                processes.iter().map(|it| format!("{} (process {})", it.name, it.id)).collect();
            known.join(", ")
        };
        let points: Vec<_> =
            self.mounts.iter().take(MAX_NAMED).map(|it| it.display().to_string()).collect();
        let mut uses = Vec::new();
        if !points.is_empty() {
            uses.push(format!("mounted at {}", points.join(", ")));
        }
        if !self.namespaces.is_empty() {
            uses.push(format!("in the mount namespace of {}", list(&self.namespaces)));
        }
        if !self.openers.is_empty() {
            uses.push(format!("opened by {}", list(&self.openers)));
        }
        match uses.is_empty() {
            true => out.write_str(" by a process that is not visible from here"),
            false => write!(out, " {}", uses.join(" and ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_the_device_and_one_of_its_node_are_seen() {
        let mounted = "36 35 7:12 / /data rw shared:1 - ext4 /dev/loop12 rw";
        let shown = "40 35 0:5 /loop12 /target rw - devtmpfs udev rw";
        for (table, point) in [(mounted, "/data"), (shown, "/target")] {
            assert_eq!(points(table, 12), [PathBuf::from(point)]);
            assert_eq!(points(table, 1), Vec::<PathBuf>::new());
        }
    }

    #[test]
    fn what_is_not_seen_is_said_to_be_unseen() {
        assert!(Holders::default().to_string().contains("not visible"));
    }

    #[test]
    fn every_way_to_hold_a_device_is_named() {
        let sleep = Process { id: 7, name: "sleep".to_owned() };
        let in_namespace = Holders { namespaces: vec![sleep.clone()], ..Default::default() };
        assert_eq!(in_namespace.to_string(), " in the mount namespace of sleep (process 7)");
        let all = Holders { mounts: vec!["/mnt".into()], openers: vec![sleep], ..in_namespace };
        assert_eq!(
            all.to_string(),
            " mounted at /mnt and in the mount namespace of sleep (process 7) and opened by sleep (process 7)"
        );
    }
}
