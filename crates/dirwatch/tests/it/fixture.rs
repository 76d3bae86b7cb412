//! A watch on a temporary folder, with its changes replayed and checked.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use tokio::time::timeout;
use wharf_dirwatch::{Change, Depth, DirWatch, FileId, Kind, Options, scan};

/// Long enough for a loaded machine; only a failing test waits this long.
const LIMIT: Duration = Duration::from_secs(20);
/// A rescan that never comes: changes are seen through events only.
pub(crate) const NEVER: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Fixture {
    pub(crate) watch: DirWatch,
    pub(crate) options: Options,
    /// The files that the changes add up to.
    pub(crate) state: BTreeMap<PathBuf, FileId>,
    _folder: TempDir,
}

impl Fixture {
    /// A watch on sockets in a tree, after its first scan.
    pub(crate) async fn sockets(folder: TempDir) -> Self {
        let mut fixture = Self::start(folder, Kind::Socket, Depth::Tree, |_| {});
        fixture.sync().await;
        fixture
    }

    /// Calls `prepare` to change the options, or the folder, before the watch starts.
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

    /// A path in the folder that holds the root.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self._folder.path().join(name)
    }

    /// The next change, checked to be possible.
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

    /// Follows the watch until it is synced, and returns the changes before.
    pub(crate) async fn sync(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            match self.next().await {
                Change::Synced => return heard,
                change => heard.push(self.say(&change)),
            }
        }
    }

    /// Follows the watch until every change before this call was seen, and returns the changes. A
    /// socket with a name that sorts last is the signal.
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
                // The file was opened and written in two steps.
                Change::Replaced { path, .. } if path == sign => {}
                change => heard.push(self.say(&change)),
            }
        }
    }

    /// Fails unless the changes add up to the result of a fresh scan.
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

/// A folder on disk, and one in memory where /dev/shm exists.
pub(crate) fn places() -> Vec<TempDir> {
    let mut places = vec![tempfile::tempdir().expect("a temporary folder")];
    places.extend(tempfile::tempdir_in("/dev/shm").ok());
    places
}

pub(crate) fn place() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Makes a socket file that stays when the listener is dropped.
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
