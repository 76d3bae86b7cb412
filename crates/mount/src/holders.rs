//! Who has a loop device mounted, as far as `/proc` shows it.

use std::{fmt, fs, path::Path};

/// More are not named.
const MOST: usize = 3;

/// Processes in whose mount namespaces a device is mounted, one for each namespace.
///
/// For a person to read: a process of another pod shows only where this one sees the node's processes (`hostPID`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    processes: Vec<(u32, String)>,
}

/// The holders of `/dev/loop<number>`.
pub fn of_device(number: u32) -> Holders {
    let mut namespaces = Vec::new();
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let folder = entry.path();
        let Ok(namespace) = fs::read_link(folder.join("ns/mnt")) else { continue };
        if namespaces.contains(&namespace) || processes.len() == MOST {
            continue;
        }
        let table = fs::read_to_string(folder.join("mountinfo")).unwrap_or_default();
        if shows(&table, number) {
            processes.push((id, name(&folder)));
        }
        namespaces.push(namespace);
    }
    Holders { processes }
}

/// Whether a table of mounts has one of the device, or of its node.
fn shows(table: &str, number: u32) -> bool {
    let (device, node) = (format!("7:{number}"), format!("/loop{number}"));
    table.lines().any(|line| {
        let mut fields = line.split(' ').skip(2);
        fields.next() == Some(&device) || fields.next() == Some(&node)
    })
}

fn name(folder: &Path) -> String {
    fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_owned()
}

impl fmt::Display for Holders {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.processes.is_empty() {
            return out.write_str(" by a process that cannot be seen from here");
        }
        let known: Vec<_> =
            self.processes.iter().map(|(id, name)| format!("{name} (process {id})")).collect();
        write!(out, " in the mount namespace of {}", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_the_device_and_one_of_its_node_are_seen() {
        let mounted = "36 35 7:12 / /data rw shared:1 - ext4 /dev/loop12 rw";
        let shown = "40 35 0:5 /loop12 /target rw - devtmpfs udev rw";
        for table in [mounted, shown] {
            assert!(shows(table, 12), "{table}");
            assert!(!shows(table, 1), "{table}");
        }
    }

    #[test]
    fn what_is_not_seen_is_said_to_be_unseen() {
        let holders = Holders { processes: vec![(7, "sleep".to_owned())] };
        assert_eq!(holders.to_string(), " in the mount namespace of sleep (process 7)");
        assert!(Holders::default().to_string().contains("cannot be seen"));
    }
}
