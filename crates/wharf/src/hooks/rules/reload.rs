//! The file of rules, followed.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};
use wharf_hooks::HookServer;

use super::{file::Rules, server::RuleServer};

/// A file of a ConfigMap is a symlink through a hidden folder: its change is seen by this look at the latest.
const RESCAN: Duration = Duration::from_secs(10);

/// Puts each good version of the file in force, until `stop`.
pub(super) async fn watch(
    file: PathBuf,
    rules: Arc<RuleServer>,
    server: HookServer,
    stop: CancellationToken,
) {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let mut changes = DirWatch::start(Options {
        root: folder.to_owned(),
        depth: Depth::Folder,
        kind: Kind::File,
        rescan: RESCAN,
        create_root: None,
    });
    while let Some(Some(change)) = stop.run_until_cancelled(changes.next()).await {
        let is_own = |path: &Path| path.file_name() == file.file_name();
        match change {
            Change::Appeared { path, .. } | Change::Replaced { path, .. } if is_own(&path) => {
                load(&file, &rules, &server).await;
            }
            Change::Vanished { path } if is_own(&path) => {
                warn!(file = %file.display(), "the rules are gone: the last ones stay in force");
            }
            Change::Trouble { message } => {
                warn!(file = %file.display(), message, "changes of the rules may be seen late");
            }
            _ => {}
        }
    }
    changes.stop().await;
}

/// The first look finds the file that was loaded at the start; to load it again does no harm.
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
            error!(error, "the new rules are refused: the last good ones stay in force");
        }
    }
}
