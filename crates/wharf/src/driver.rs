//! `wharf driver`: the local-storage CSI driver, and commands for its pools.

mod config;
mod pool;
mod serve;

use std::process::ExitCode;

use clap::{Args, Subcommand};

/// Default of --state-dir.
const STATE_DIR: &str = "/var/lib/wharf-driver";
/// Default of --driver-name.
const DRIVER_NAME: &str = "local.csi.wharf";

/// Serves local storage as CSI volumes, from a folder of this node
///
/// Volumes are images in the pool's folder. Snapshots and clones take no time where the folder's
/// filesystem can share blocks (xfs, btrfs), and are full copies on other filesystems. For example:
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
    /// Shows, checks and repairs the contents of a pool
    #[command(subcommand)]
    Pool(pool::Pool),
    /// Checks a file for --config; exits with 1 if the driver would refuse it
    CheckConfig(config::CheckConfig),
}

impl Driver {
    pub(crate) fn run(self) -> ExitCode {
        match self.about {
            Some(About::Pool(pool)) => pool.run(),
            Some(About::CheckConfig(check)) => check.run(),
            None => self.serve.run(),
        }
    }
}
