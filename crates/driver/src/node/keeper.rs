//! Limits on cgroups to come.
//!
//! Version 1 of cgroups limits each cgroup for itself, and a pod's containers get theirs after its volumes are published.
//! So the cgroups of pods with limited volumes are watched, and what appears in them is limited at once.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt;
use inotify::{Inotify, WatchDescriptor, WatchMask, Watches};
use tokio_util::sync::CancellationToken;

use super::NodeVolumes;

/// Keeps the limits of every volume in use until `stop`.
///
/// # Errors
/// When cgroups cannot be watched; limits then hold only where they were applied.
pub async fn keep_limits(node: Arc<NodeVolumes>, stop: CancellationToken) -> io::Result<()> {
    let mut appeared = Inotify::init()?.into_event_stream([0; 4096])?;
    let mut watched: HashMap<PathBuf, WatchDescriptor> = HashMap::new();
    loop {
        let keeper = node.clone();
        let groups = tokio::task::spawn_blocking(move || keeper.apply_all_limits()).await?;
        if follow(&mut appeared.watches(), &mut watched, groups) {
            // Something may have appeared in a cgroup before it was watched.
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = node.limited.notified() => {}
            // Which cgroup it was does not matter: all are looked at.
            event = appeared.next() => event.transpose().map(drop)?,
        }
    }
}

/// Watches exactly `groups`; true when one was not watched before.
fn follow(
    watches: &mut Watches,
    watched: &mut HashMap<PathBuf, WatchDescriptor>,
    groups: Vec<PathBuf>,
) -> bool {
    watched.retain(|group, watch| {
        let wanted = groups.contains(group);
        if !wanted {
            // The kernel has dropped the watch of a cgroup that is gone.
            let _ = watches.remove(watch.clone());
        }
        wanted
    });
    let mut grown = false;
    for group in groups {
        if watched.contains_key(&group) {
            continue;
        }
        // A cgroup that went away meanwhile needs no watch.
        if let Ok(watch) =
            watches.add(&group, WatchMask::CREATE | WatchMask::DELETE_SELF | WatchMask::ONLYDIR)
        {
            watched.insert(group, watch);
            grown = true;
        }
    }
    grown
}
