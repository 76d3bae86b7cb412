//! The node side of volumes: stage, publish, measure, and undo.
//!
//! Every step asks the kernel first. A record holds the desired state; the actual state is read
//! from the mount table and the loop devices. So after a crash, a reboot or a manual umount, only
//! the missing steps are repeated.

mod attached;
mod cgroup;
mod dead;
mod filesystem;
mod health;
mod inline;
mod keeper;
mod kernel;
mod limits;
mod publish;
mod recover;
mod stage;
mod stats;
mod target;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub use cgroup::Cgroups;
pub use health::{Ailment, Severity};
pub use inline::{InlineCalls, InlineLimits};
pub use keeper::keep_limits;
pub use limits::Applied;
pub use publish::Publish;
pub use stage::StageRequest;
pub use stats::Stats;
pub(crate) use target::remove_target;

use tokio::sync::Notify;
use wharf_mount::paths;

use crate::{error::Error, pool::Pool, state_dir::AttachedImages};

/// Options of the node side.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Timeout of mkfs, fsck and resize2fs, each.
    pub program_limit: Duration,
    /// The kubelet's folder. Symlinks in its own path are the administrator's choice; elsewhere in
    /// a path from the orchestrator they are refused.
    pub kubelet_root: PathBuf,
    /// Root of the cgroups; `None` to record limits without applying them.
    pub cgroups: Option<PathBuf>,
    /// Limits of inline volumes.
    pub inline: InlineLimits,
}

/// The volumes of a pool on this node.
#[derive(Debug)]
pub struct NodeVolumes {
    pool: Arc<Pool>,
    options: NodeOptions,
    cgroups: Option<Cgroups>,
    /// Notified when limits change, for the task that keeps them applied.
    limited: Notify,
    inline_calls: Arc<InlineCalls>,
    attached: Arc<AttachedImages>,
    unrecorded: dead::Unrecorded,
}

impl NodeVolumes {
    /// Creates the node side of a pool. All pools of a node share `inline_calls` and `attached`.
    pub fn new(
        pool: Arc<Pool>,
        options: NodeOptions,
        inline_calls: Arc<InlineCalls>,
        attached: Arc<AttachedImages>,
    ) -> Self {
        let cgroups = options.cgroups.as_deref().map(Cgroups::new);
        inline_calls.add(&pool);
        Self {
            pool,
            options,
            cgroups,
            limited: Notify::new(),
            inline_calls,
            attached,
            unrecorded: Default::default(),
        }
    }

    fn refuse_symlinks(&self, path: &Path) -> Result<(), Error> {
        Ok(paths::refuse_symlinks_below(&self.options.kubelet_root, path)?)
    }
}
