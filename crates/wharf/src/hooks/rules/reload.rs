//! Reloads the file of rules when it changes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use wharf_hooks::HookServer;

use super::{file::Rules, server::RuleServer};
use crate::follow::follow;

/// Puts each good version of the file in force, until `stop`.
pub(super) async fn watch(
    file: PathBuf,
    rules: Arc<RuleServer>,
    server: HookServer,
    stop: CancellationToken,
) {
    follow(&file, stop, || load(&file, &rules, &server)).await;
}

/// Loads the file. Loading the same version twice is harmless.
async fn load(file: &Path, hooks: &RuleServer, server: &HookServer) {
    match Rules::load(file).await {
        Ok(rules) => {
            let (count, points) = (rules.len(), rules.points());
            hooks.replace(rules);
            server.narrow(&points);
            info!(file = %file.display(), rules = count, "rules in force");
        }
        Err(error) => {
            let error = format!("{:#}", anyhow::Error::from(error));
            error!(error, "refused the new rules, keeping the last good ones");
        }
    }
}
