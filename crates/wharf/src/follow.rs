//! Reloads a configuration file whenever it changes, also if it is mounted from a ConfigMap.

use std::{path::Path, time::Duration};

use tokio_util::sync::CancellationToken;
use tracing::warn;
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};

/// Interval at which the file is checked for changes without an event: those of a symlink's target.
const RESCAN: Duration = Duration::from_secs(10);

/// Calls `load` for each version of the file, until `stop`. The first call is for the version that
/// exists at the start.
pub(crate) async fn follow<F: Future<Output = ()>>(
    file: &Path,
    stop: CancellationToken,
    mut load: impl FnMut() -> F,
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
                load().await;
            }
            Change::Vanished { path } if is_own(&path) => {
                warn!(file = %file.display(), "file is missing, keeping its last version");
            }
            Change::Trouble { message } => {
                warn!(file = %file.display(), error = message, "failed to watch file, changes may be late");
            }
            _ => {}
        }
    }
    changes.stop().await;
}
