//! Applies limits to cgroups that are created later.
//!
//! cgroup v1 limits each cgroup separately, and a pod's containers get their cgroups after its
//! volumes are published. So this task watches the cgroups of pods with limited volumes, and limits
//! new ones at once.

use std::{collections::HashMap, io, path::PathBuf, sync::Arc};

use futures_util::StreamExt;
use inotify::{Inotify, WatchDescriptor, WatchMask, Watches};
use tokio_util::sync::CancellationToken;

use super::NodeVolumes;

/// Keeps the limits of all published volumes applied until `stop`.
///
/// # Errors
/// If cgroups cannot be watched; limits then apply only to existing cgroups.
pub async fn keep_limits(node: Arc<NodeVolumes>, stop: CancellationToken) -> io::Result<()> {
    let mut appeared = Inotify::init()?.into_event_stream([0; 4096])?;
    let mut watched: HashMap<PathBuf, WatchDescriptor> = HashMap::new();
    loop {
        let keeper = node.clone();
        let groups = tokio::task::spawn_blocking(move || keeper.apply_all_limits()).await?;
        if follow(&mut appeared.watches(), &mut watched, groups) {
            // A cgroup may have been created before its parent was watched.
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = node.limited.notified() => {}
            // Whichever cgroup changed, check all.
            event = appeared.next() => event.transpose().map(drop)?,
        }
    }
}

/// Watches exactly `groups`. Returns true if one was not watched before.
fn follow(
    watches: &mut Watches,
    watched: &mut HashMap<PathBuf, WatchDescriptor>,
    groups: Vec<PathBuf>,
) -> bool {
    watched.retain(|group, watch| {
        let wanted = groups.contains(group);
        if !wanted {
            // Fails for a removed cgroup, whose watch the kernel has dropped.
            let _ = watches.remove(watch.clone());
        }
        wanted
    });
    let mut grown = false;
    for group in groups {
        if watched.contains_key(&group) {
            continue;
        }
        // The cgroup may have been removed meanwhile.
        if let Ok(watch) =
            watches.add(&group, WatchMask::CREATE | WatchMask::DELETE_SELF | WatchMask::ONLYDIR)
        {
            watched.insert(group, watch);
            grown = true;
        }
    }
    grown
}
