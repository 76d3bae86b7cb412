//! inotify, its watches, and the meaning of its events.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
};

use inotify::{Event, EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{Counters, Kind, Options, options::is_hidden, subtree::remove_below};

/// The link in a ConfigMap volume that the kubelet replaces to change all files at once.
const CONFIG_MAP_DATA: &str = "..data";

/// The meaning of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Look at the path.
    File(PathBuf),
    /// Look at the path, and below it.
    Folder(PathBuf),
    /// Look at the path: the file or folder there was removed or moved away.
    Gone(PathBuf),
    /// Look at the file: it was written to.
    Written(PathBuf),
    /// Look at the root.
    Root,
    /// Events were dropped: look at everything, with a new listener.
    Overflow,
}

/// Why the folder that holds the root is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The root is missing: report when it is made, and when it is removed.
    Coming,
    /// The root exists: report its removal only, since other entries of that folder are made often.
    Going,
}

/// One inotify instance. `folders` and `paths` are each other's inverse.
#[derive(Debug)]
pub(crate) struct Listener {
    inotify: AsyncFd<Inotify>,
    watches: Watches,
    mask: WatchMask,
    kind: Kind,
    root: PathBuf,
    folders: BTreeMap<PathBuf, WatchDescriptor>,
    paths: HashMap<WatchDescriptor, PathBuf>,
    /// The watch on the folder that holds the root.
    parent: Option<WatchDescriptor>,
    counters: Counters,
}

impl Listener {
    pub(crate) fn new(options: &Options, counters: Counters) -> io::Result<Self> {
        let inotify = Inotify::init()?;
        let watches = inotify.watches();
        let mut mask = WatchMask::CREATE
            | WatchMask::MOVE
            | WatchMask::DELETE
            | WatchMask::DELETE_SELF
            | WatchMask::MOVE_SELF
            | WatchMask::ONLYDIR;
        if options.kind == Kind::File {
            mask |= WatchMask::CLOSE_WRITE | WatchMask::ATTRIB;
        }
        Ok(Self {
            inotify: register(inotify)?,
            watches,
            mask,
            kind: options.kind,
            root: options.root.clone(),
            folders: BTreeMap::new(),
            paths: HashMap::new(),
            parent: None,
            counters,
        })
    }

    /// Resolves when there may be events; read all of them with [`Listener::read`] then.
    pub(crate) async fn heard(&mut self) -> io::Result<()> {
        // Cleared before reading: an event that comes while reading sets it again.
        self.inotify.readable_mut().await?.clear_ready();
        Ok(())
    }

    /// Reads all events that are queued.
    pub(crate) fn read(&mut self, mut sign: impl FnMut(Sign)) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.inotify.get_mut().read_events(&mut buffer) {
                Ok(events) => {
                    for event in events {
                        self.counters.count_event();
                        self.interpret(&event).into_iter().for_each(&mut sign);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Watches a folder. For a folder that is watched already this is one system call without
    /// effect.
    pub(crate) fn watch(&mut self, folder: &Path) -> io::Result<()> {
        let follow = if folder == self.root { WatchMask::empty() } else { WatchMask::DONT_FOLLOW };
        let watch = self.watches.add(folder, self.mask | follow)?;
        if self.folders.get(folder) == Some(&watch) {
            return Ok(());
        }
        // The folder was moved here, and the kernel still has its old watch.
        if let Some(old_path) = self.paths.insert(watch.clone(), folder.to_path_buf()) {
            self.folders.remove(&old_path);
        }
        // Another folder had this path.
        if let Some(old_watch) = self.folders.insert(folder.to_path_buf(), watch) {
            self.paths.remove(&old_watch);
            self.drop_watch(old_watch);
        }
        Ok(())
    }

    /// Ends the watches on a folder and all folders below it.
    pub(crate) fn unwatch(&mut self, top: &Path) {
        for watch in remove_below(&mut self.folders, top) {
            self.paths.remove(&watch);
            self.drop_watch(watch);
        }
    }

    /// Watches the folder that holds the root, for the root being made or removed. The root's own
    /// watch reports a removal only when the last file in it is closed, and a process may listen on
    /// a socket in it for years.
    pub(crate) fn watch_parent(&mut self, awaited: Awaited) -> io::Result<()> {
        let Some(parent) = self.root.parent() else { return Ok(()) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let coming = match awaited {
            Awaited::Coming => WatchMask::CREATE | WatchMask::MOVED_TO,
            Awaited::Going => WatchMask::empty(),
        };
        let mask = coming | WatchMask::DELETE | WatchMask::ONLYDIR;
        self.parent = Some(self.watches.add(parent, mask)?);
        Ok(())
    }

    /// Fails only for a watch that the kernel has already ended.
    fn drop_watch(&mut self, watch: WatchDescriptor) {
        let _ = self.watches.remove(watch);
    }

    fn interpret(&mut self, event: &Event<&OsStr>) -> Option<Sign> {
        if event.mask.contains(EventMask::Q_OVERFLOW) {
            self.counters.count_overflow();
            return Some(Sign::Overflow);
        }
        if self.parent.as_ref() == Some(&event.wd) {
            if event.mask.contains(EventMask::IGNORED) {
                self.parent = None;
                return Some(Sign::Root);
            }
            return (event.name == self.root.file_name()).then_some(Sign::Root);
        }
        // Without a path: the last event of a watch that was dropped.
        let folder = self.paths.get(&event.wd)?;
        let Some(name) = event.name else {
            return Some(self.interpret_own(event, folder.clone()));
        };
        if is_hidden(name) {
            // All files of a ConfigMap are symlinks through this one.
            let is_replaced = name == CONFIG_MAP_DATA && *folder == self.root;
            return (is_replaced && self.kind == Kind::File).then_some(Sign::Root);
        }
        let path = folder.join(name);
        if event.mask.intersects(EventMask::DELETE | EventMask::MOVED_FROM) {
            if event.mask.contains(EventMask::ISDIR) {
                self.unwatch(&path);
            }
            return Some(Sign::Gone(path));
        }
        if event.mask.contains(EventMask::CLOSE_WRITE) {
            return Some(Sign::Written(path));
        }
        let folder = event.mask.contains(EventMask::ISDIR);
        Some(if folder { Sign::Folder(path) } else { Sign::File(path) })
    }

    /// An event about a watched folder itself.
    fn interpret_own(&mut self, event: &Event<&OsStr>, folder: PathBuf) -> Sign {
        if event.mask.contains(EventMask::IGNORED) {
            self.paths.remove(&event.wd);
            self.folders.remove(&folder);
        }
        if folder == self.root { Sign::Root } else { Sign::Folder(folder) }
    }
}

#[expect(
    deprecated,
    reason = "its replacement is unsafe, for a promise that Inotify keeps: it owns \
              its descriptor and never exchanges it"
)]
fn register(inotify: Inotify) -> io::Result<AsyncFd<Inotify>> {
    AsyncFd::with_interest(inotify, Interest::READABLE)
}
