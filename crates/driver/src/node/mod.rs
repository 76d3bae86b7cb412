//! What a node does with volumes: stage, publish, measure, and undo all of it.
//!
//! Every step asks the kernel first. A record says what was wanted; whether it is so is read from the mount table and the
//! loop devices, so that a crash, a reboot or someone's umount is met by doing again only what is missing.

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

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

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

use crate::error::Error;
use crate::pool::Pool;
use crate::state_dir::AttachedImages;

/// How the node part is run.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// How long mkfs, fsck and resize2fs may take, each.
    pub program_limit: Duration,
    /// The kubelet's folder, in whose own path symlinks are an administrator's choice; anywhere else in a path that an
    /// orchestrator gives they are refused.
    pub kubelet_root: PathBuf,
    /// Where the cgroups of pods are; `None` where limits are only kept.
    pub cgroups: Option<PathBuf>,
    /// How much pods may ask for inline.
    pub inline: InlineLimits,
}

/// The volumes of a pool on this node.
#[derive(Debug)]
pub struct NodeVolumes {
    pool: Arc<Pool>,
    options: NodeOptions,
    cgroups: Option<Cgroups>,
    /// Told when limits were applied, for who keeps them on cgroups to come.
    limited: Notify,
    inline_calls: Arc<InlineCalls>,
    attached: Arc<AttachedImages>,
    unrecorded: dead::Unrecorded,
}

impl NodeVolumes {
    /// The node part of a pool. All pools of a node share `inline_calls` and `attached`.
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
