//! `wharf driver`: the local-storage CSI driver, and what is on its pool.

mod pool;
mod serve;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Serves local storage as CSI volumes, from a folder of this node
///
/// Volumes are images in the pool's folder: with snapshots and clones that take no time where its filesystem can share
/// blocks (xfs, btrfs), and on any other filesystem, too. For example:
///
///   wharf driver --endpoint unix:///csi/csi.sock --pool /var/lib/wharf --node "$NODE_NAME"
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    verbatim_doc_comment
)]
pub(crate) struct Driver {
    #[command(subcommand)]
    about: Option<About>,
    #[command(flatten)]
    serve: serve::Serve,
}

#[derive(Subcommand)]
enum About {
    /// Shows, verifies and repairs what is on a pool's disk
    #[command(subcommand)]
    Pool(pool::Pool),
}

impl Driver {
    pub(crate) fn run(self) -> ExitCode {
        match self.about {
            Some(About::Pool(pool)) => pool.run(),
            None => self.serve.run(),
        }
    }
}
