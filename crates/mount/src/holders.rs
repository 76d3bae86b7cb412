//! Who uses a loop device, as far as `/proc` shows it.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

/// More are not named.
const MOST: usize = 3;

/// Processes that have a device mounted or open: one for each mount namespace, and each that has it open.
///
/// For a person to read: a process of another pod shows only where this one sees the node's processes (`hostPID`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Where it is mounted in this process's own mount namespace.
    mounts: Vec<PathBuf>,
    /// Processes in whose mount namespaces it is mounted.
    namespaces: Vec<Process>,
    /// Processes that have it open.
    openers: Vec<Process>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    id: u32,
    name: String,
}

/// The holders of `/dev/loop<number>`.
pub fn of_device(number: u32) -> Holders {
    let mut holders =
        Holders { mounts: mounts("/proc/self/mountinfo", number), ..Default::default() };
    let mut seen: Vec<_> = fs::read_link("/proc/self/ns/mnt").into_iter().collect();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let folder = entry.path();
        // A kernel thread has no program, and uses nothing.
        if id == std::process::id() || fs::read_link(folder.join("exe")).is_err() {
            continue;
        }
        let process = || Process { id, name: name(&folder) };
        if holders.openers.len() < MOST && has_open(&folder, number) {
            holders.openers.push(process());
        }
        let Ok(namespace) = fs::read_link(folder.join("ns/mnt")) else { continue };
        if holders.namespaces.len() < MOST && !seen.contains(&namespace) {
            seen.push(namespace);
            if !mounts(folder.join("mountinfo"), number).is_empty() {
                holders.namespaces.push(process());
            }
        }
    }
    holders
}

/// Where a table of mounts has the device, or its node.
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
            self.mounts.iter().take(MOST).map(|it| it.display().to_string()).collect();
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
            true => out.write_str(" by a process that cannot be seen from here"),
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
        assert!(Holders::default().to_string().contains("cannot be seen"));
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
