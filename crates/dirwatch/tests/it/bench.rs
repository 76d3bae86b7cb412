//! A watch on a temporary folder, with everything it said replayed and checked.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::timeout;
use wharf_dirwatch::{Change, Depth, DirWatch, FileId, Kind, Options, scan};

/// Long enough for a loaded machine; only a failing test waits so long.
const LIMIT: Duration = Duration::from_secs(20);
/// A rescan that never comes: what is seen, is seen through events.
pub(crate) const NEVER: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Bench {
    pub(crate) watch: DirWatch,
    pub(crate) options: Options,
    /// What the changes add up to.
    pub(crate) state: BTreeMap<PathBuf, FileId>,
    _folder: TempDir,
}

impl Bench {
    /// A watch on sockets in a tree that was looked at once.
    pub(crate) async fn sockets(folder: TempDir) -> Self {
        let mut bench = Self::start(folder, Kind::Socket, Depth::Tree, |_| {});
        bench.sync().await;
        bench
    }

    /// Options to change, or things to do, before the watch starts.
    pub(crate) fn start(
        folder: TempDir,
        kind: Kind,
        depth: Depth,
        prepare: impl FnOnce(&mut Options),
    ) -> Self {
        let mut options = Options {
            root: folder.path().join("root"),
            depth,
            kind,
            rescan: NEVER,
            create_root: Some(0o750),
        };
        prepare(&mut options);
        let watch = DirWatch::start(options.clone());
        Self { watch, options, state: BTreeMap::new(), _folder: folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.options.root.join(name)
    }

    /// Everything the folder is in.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self._folder.path().join(name)
    }

    /// The next change, checked for being possible.
    pub(crate) async fn next(&mut self) -> Change {
        let change = timeout(LIMIT, self.watch.next()).await;
        let change = change.expect("a change within the limit").expect("the watch goes on");
        match &change {
            Change::Appeared { path, id } => {
                assert!(self.state.insert(path.clone(), *id).is_none(), "was there: {path:?}");
            }
            Change::Replaced { path, id } => {
                assert!(self.state.insert(path.clone(), *id).is_some(), "was not there: {path:?}");
            }
            Change::Vanished { path } => {
                assert!(self.state.remove(path).is_some(), "was not there: {path:?}");
            }
            Change::Synced | Change::Trouble { .. } => {}
        }
        change
    }

    /// Follows the watch until it is synced, and returns what came before.
    pub(crate) async fn sync(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            match self.next().await {
                Change::Synced => return heard,
                change => heard.push(self.say(&change)),
            }
        }
    }

    /// Follows the watch until all that was done before this call was seen, and returns what was
    /// said. A socket with the last of all names is the sign.
    pub(crate) async fn settle(&mut self) -> Vec<String> {
        let sign = self.path("~settled");
        make_entry(&sign, self.options.kind);
        let mut heard = Vec::new();
        loop {
            match self.next().await {
                Change::Appeared { path, .. } if path == sign => break,
                change => heard.push(self.say(&change)),
            }
        }
        fs::remove_file(&sign).expect("the sign is there");
        loop {
            match self.next().await {
                Change::Vanished { path } if path == sign => return heard,
                // A file that was opened and written in two steps.
                Change::Replaced { path, .. } if path == sign => {}
                change => heard.push(self.say(&change)),
            }
        }
    }

    /// What the changes add up to is what a fresh scan finds.
    pub(crate) fn agrees_with_a_scan(&self) {
        let there = scan(&self.options).expect("the root can be read");
        let wrong: Vec<_> =
            self.state.iter().filter(|(path, id)| there.get(*path) != Some(id)).collect();
        let missed: Vec<_> = there.keys().filter(|path| !self.state.contains_key(*path)).collect();
        assert!(wrong.is_empty() && missed.is_empty(), "wrong: {wrong:?}, missed: {missed:?}");
    }

    /// A change as a short text: `+` appeared, `*` replaced, `-` vanished, path below the root.
    fn say(&self, change: &Change) -> String {
        let below = |path: &PathBuf| {
            path.strip_prefix(&self.options.root).expect("below the root").display().to_string()
        };
        match change {
            Change::Appeared { path, .. } => format!("+{}", below(path)),
            Change::Replaced { path, .. } => format!("*{}", below(path)),
            Change::Vanished { path } => format!("-{}", below(path)),
            Change::Synced => "synced".to_owned(),
            Change::Trouble { message } => format!("trouble: {message}"),
        }
    }
}

/// A folder on disk, and one in memory where the machine has such a place.
pub(crate) fn places() -> Vec<TempDir> {
    let mut places = vec![tempfile::tempdir().expect("a temporary folder")];
    places.extend(tempfile::tempdir_in("/dev/shm").ok());
    places
}

pub(crate) fn place() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Makes a socket that stays when the listener is dropped, as a socket file does.
pub(crate) fn socket(path: &Path) {
    drop(UnixListener::bind(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
}

pub(crate) fn remove(path: &Path) {
    fs::remove_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

pub(crate) fn make_entry(path: &Path, kind: Kind) {
    match kind {
        Kind::Socket => socket(path),
        Kind::File => fs::write(path, "content").expect("the folder is there"),
    }
}
