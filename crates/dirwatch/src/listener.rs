//! inotify, its watches, and what its events mean.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use inotify::{Event, EventMask, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::options::is_hidden;
use crate::subtree::remove_below;
use crate::{Counters, Kind, Options};

/// The link in a ConfigMap volume that the kubelet replaces to change all files at once.
const CONFIG_MAP_DATA: &str = "..data";

/// What an event says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Look at the path.
    File(PathBuf),
    /// Look at the path, and below it.
    Folder(PathBuf),
    /// Look at the path: what was there, a file or a folder, is gone from it.
    Gone(PathBuf),
    /// Look at the file: it was written to.
    Written(PathBuf),
    /// Look at the root.
    Root,
    /// Events were dropped: look at everything, with a new listener.
    Overflow,
}

/// What the folder that holds the root is watched for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited {
    /// The root comes or goes.
    Coming,
    /// The root goes; what else is made beside it wakes nobody.
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

    /// Resolves when there may be events; they have to be read all, with [`Listener::read`].
    pub(crate) async fn heard(&mut self) -> io::Result<()> {
        // Cleared before reading: whatever comes while reading sets it again.
        self.inotify.readable_mut().await?.clear_ready();
        Ok(())
    }

    /// Reads all events there are.
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

    /// Watches a folder; one that is watched already costs a system call and changes nothing.
    pub(crate) fn watch(&mut self, folder: &Path) -> io::Result<()> {
        let follow = if folder == self.root { WatchMask::empty() } else { WatchMask::DONT_FOLLOW };
        let watch = self.watches.add(folder, self.mask | follow)?;
        if self.folders.get(folder) == Some(&watch) {
            return Ok(());
        }
        // The folder was moved here, and the kernel still knows it by its old watch.
        if let Some(old_path) = self.paths.insert(watch.clone(), folder.to_path_buf()) {
            self.folders.remove(&old_path);
        }
        // Another folder was here.
        if let Some(old_watch) = self.folders.insert(folder.to_path_buf(), watch) {
            self.paths.remove(&old_watch);
            self.drop_watch(old_watch);
        }
        Ok(())
    }

    /// Ends the watches on a folder and all below it.
    pub(crate) fn unwatch(&mut self, top: &Path) {
        for watch in remove_below(&mut self.folders, top) {
            self.paths.remove(&watch);
            self.drop_watch(watch);
        }
    }

    /// Watches the folder that holds the root: for its coming, and for its removal. The root's own watch hears of
    /// that only when the last of its files is closed, and a socket in it may be listened on for years.
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

    /// Fails only for a watch that the kernel has ended itself.
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
        // No path: the last words of a watch that was dropped.
        let folder = self.paths.get(&event.wd)?;
        let Some(name) = event.name else {
            return Some(self.interpret_own(event, folder.clone()));
        };
        if is_hidden(name) {
            // All files of a ConfigMap are links through this one.
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
    reason = "what replaces it is unsafe; Inotify keeps the promise that is asked for there: it owns \
              its descriptor and never exchanges it"
)]
fn register(inotify: Inotify) -> io::Result<AsyncFd<Inotify>> {
    AsyncFd::with_interest(inotify, Interest::READABLE)
}
