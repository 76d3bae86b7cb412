//! A pass: reads events and looks at files until both agree.

use std::{
    collections::BTreeSet,
    fs::{DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tokio_util::sync::CancellationToken;

use crate::{
    Change, Counters, Depth, FileId, Options,
    health::Health,
    known::Known,
    listener::{Awaited, Listener, Sign},
    look::{Look, is_absence, look},
    scan::{Visitor, walk},
};

/// After this many rounds a pass reports its findings so far: something keeps changing files, and
/// the next pass continues.
const ROUNDS: usize = 8;
/// Looks that may be done in an async task.
const FEW: usize = 64;

/// The watched tree: its known files, and the paths to look at next. Blocks, in small steps.
#[derive(Debug)]
pub(crate) struct Tree {
    options: Options,
    stop: CancellationToken,
    counters: Counters,
    /// `None` while the kernel grants no inotify instance.
    listener: Option<Listener>,
    known: Known,
    agenda: Agenda,
    health: Health,
    root_was_there: bool,
}

/// The paths to look at.
#[derive(Debug, Default)]
struct Agenda {
    paths: BTreeSet<PathBuf>,
    /// Whether some of the paths are folders to walk.
    folders: bool,
    everything: bool,
    overflow: bool,
}

impl Tree {
    /// A tree without known files, and everything on the agenda.
    pub(crate) fn new(options: Options, counters: Counters, stop: CancellationToken) -> Self {
        Self {
            options,
            stop,
            counters,
            listener: None,
            known: Known::default(),
            agenda: Agenda { everything: true, ..Agenda::default() },
            health: Health::default(),
            root_was_there: false,
        }
    }

    /// Puts everything on the agenda.
    pub(crate) fn plan_rescan(&mut self) {
        self.agenda.everything = true;
    }

    /// Whether the next pass looks at everything.
    pub(crate) fn plans_rescan(&self) -> bool {
        self.agenda.everything
    }

    /// Whether the next pass may take too long for an async task.
    pub(crate) fn plans_much(&self) -> bool {
        self.agenda.everything || self.agenda.folders || self.agenda.paths.len() > FEW
    }

    /// The fault of the watch.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.health.trouble()
    }

    /// Resolves when events came, and puts their paths on the agenda.
    pub(crate) async fn heard(&mut self) {
        let heard = match &mut self.listener {
            Some(listener) => listener.heard().await,
            None => std::future::pending().await,
        };
        match heard {
            Ok(()) => self.listen(),
            Err(error) => self.lose_listener(&error),
        }
    }

    /// Looks at the paths on the agenda until no new event comes, and returns the changes.
    pub(crate) fn pass(&mut self) -> Vec<Change> {
        for round in 1..=ROUNDS {
            let agenda = std::mem::take(&mut self.agenda);
            if agenda.overflow {
                self.listener = None;
            }
            if agenda.everything {
                self.walk_root();
            } else {
                agenda.paths.iter().for_each(|path| self.look(path));
            }
            // Events read now must be looked at before the pass ends, so not in the last round.
            if round < ROUNDS {
                self.listen();
                if self.agenda.is_empty() {
                    break;
                }
            }
        }
        if self.stop.is_cancelled() {
            return Vec::new();
        }
        let mut changes = self.known.settle();
        changes.extend(self.health.report());
        changes
    }

    /// Reads all queued events, and puts their paths on the agenda.
    fn listen(&mut self) {
        let Self { listener: Some(listener), known, agenda, .. } = self else { return };
        if let Err(error) = listener.read(|sign| agenda.note(sign, known)) {
            self.lose_listener(&error);
        }
    }

    fn lose_listener(&mut self, error: &io::Error) {
        tracing::warn!(root = %self.options.root.display(), %error, "inotify failed, restarting");
        self.listener = None;
        self.agenda.everything = true;
    }

    fn look(&mut self, path: &Path) {
        match look(path, self.options.kind) {
            Look::File(id) => {
                self.nothing_below(path);
                self.known.found(path, id);
            }
            Look::Folder if self.options.depth == Depth::Tree => {
                if let Err(error) = self.walk(path) {
                    self.cannot_walk(path, &error);
                }
            }
            Look::Folder | Look::Nothing => self.nothing_below(path),
            Look::Unknown(error) => self.health.unknown(path, &error),
        }
    }

    fn walk_root(&mut self) {
        self.counters.count_rescan();
        self.health.begin_rescan();
        self.start_listener();
        self.make_root();
        let root = self.options.root.clone();
        // Watch first, look afterwards: the root may be made or removed meanwhile.
        self.watch_parent(Awaited::Coming);
        match self.walk(&root) {
            Ok(()) => {
                self.root_was_there = true;
                self.watch_parent(Awaited::Going);
            }
            Err(error) => self.cannot_walk(&root, &error),
        }
    }

    fn start_listener(&mut self) {
        if self.listener.is_some() {
            return;
        }
        match Listener::new(&self.options, self.counters.clone()) {
            Ok(listener) => self.listener = Some(listener),
            Err(error) => self.health.degraded(|| {
                format!(
                    "cannot start inotify for {}: {error}; changes are seen by rescans only (raise \
                     fs.inotify.max_user_instances or the limit of open files)",
                    self.options.root.display()
                )
            }),
        }
    }

    fn make_root(&mut self) {
        let Some(mode) = self.options.create_root.filter(|_| !self.root_was_there) else { return };
        let root = &self.options.root;
        if let Err(error) = make_folder(root, mode) {
            self.health.degraded(|| format!("cannot make the folder {}: {error}", root.display()));
        }
    }

    fn watch_parent(&mut self, awaited: Awaited) {
        if let Some(listener) = &mut self.listener
            && let Err(error) = listener.watch_parent(awaited)
        {
            let root = self.options.root.display();
            tracing::debug!(%root, %error, "failed to watch the parent of the root");
        }
    }

    /// Watches and looks at everything below a folder. Returns an error if the folder itself cannot
    /// be read.
    fn walk(&mut self, top: &Path) -> io::Result<()> {
        self.known.begin_walk(top);
        let mut visit = Visit {
            known: &mut self.known,
            listener: self.listener.as_mut(),
            health: &mut self.health,
        };
        walk(top, &self.options, &self.stop, &mut visit)?;
        self.known.end_walk(top);
        Ok(())
    }

    fn cannot_walk(&mut self, folder: &Path, error: &io::Error) {
        if is_absence(error) {
            self.nothing_below(folder);
            if folder != self.options.root {
                return;
            }
        }
        self.health.unknown(folder, error);
    }

    /// No file is at the path or below it.
    fn nothing_below(&mut self, path: &Path) {
        self.known.found_nothing(path);
        if let Some(listener) = &mut self.listener {
            listener.unwatch(path);
        }
    }
}

impl Agenda {
    fn note(&mut self, sign: Sign, known: &mut Known) {
        match sign {
            Sign::File(path) => {
                self.paths.insert(path);
            }
            Sign::Folder(path) => {
                self.paths.insert(path);
                self.folders = true;
            }
            Sign::Gone(path) => {
                known.mark_gone(&path);
                self.paths.insert(path);
            }
            Sign::Written(path) => {
                known.mark_written(&path);
                self.paths.insert(path);
            }
            Sign::Root => self.everything = true,
            Sign::Overflow => {
                self.everything = true;
                self.overflow = true;
            }
        }
    }

    fn is_empty(&self) -> bool {
        !self.everything && self.paths.is_empty()
    }
}

/// A walk that also watches each folder.
struct Visit<'a> {
    known: &'a mut Known,
    listener: Option<&'a mut Listener>,
    health: &'a mut Health,
}

impl Visitor for Visit<'_> {
    fn folder(&mut self, path: &Path) {
        let Some(listener) = &mut self.listener else { return };
        match listener.watch(path) {
            Ok(()) => {}
            // Reading the folder will report its absence.
            Err(error) if is_absence(&error) => {}
            Err(error) => self.health.degraded(|| {
                format!(
                    "cannot watch {}: {error}; its changes are seen by rescans only (raise \
                     fs.inotify.max_user_watches)",
                    path.display()
                )
            }),
        }
    }

    fn file(&mut self, path: &Path, id: FileId) {
        self.known.found(path, id);
    }

    fn unknown(&mut self, path: &Path, error: &io::Error) {
        self.known.skip(path);
        self.health.unknown(path, error);
    }
}

/// Makes a folder with this mode, whatever the umask; an existing one is not changed.
fn make_folder(folder: &Path, mode: u32) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        DirBuilder::new().recursive(true).mode(mode).create(parent)?;
    }
    match DirBuilder::new().mode(mode).create(folder) {
        Ok(()) => std::fs::set_permissions(folder, Permissions::from_mode(mode)),
        Err(_) if folder.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}
