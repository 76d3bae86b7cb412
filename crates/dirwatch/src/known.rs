//! The files reported so far, and the changes that looks make to them. No I/O.
//!
//! During a pass, events leave marks and looks leave findings; [`Known::settle`] turns them into
//! changes. A finding is kept only where it differs from the known state, so that a scan of a quiet
//! tree takes no memory.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

use crate::{
    Change, FileId,
    subtree::{below, below_mut, remove_below},
};

/// The files that were reported.
#[derive(Debug, Default)]
pub(crate) struct Known {
    files: BTreeMap<PathBuf, File>,
    findings: BTreeMap<PathBuf, Finding>,
    /// Known files that were removed or moved away, even if a new file has their path.
    gone: HashSet<PathBuf>,
    /// Known files that were written to.
    written: HashSet<PathBuf>,
    /// The number of the last walk.
    walk: u64,
}

#[derive(Debug)]
struct File {
    id: FileId,
    /// Whether the file is so young that its id may not change with the next write.
    fresh: bool,
    /// The last walk that met it unchanged.
    walk: u64,
}

#[derive(Debug)]
enum Finding {
    There { id: FileId, fresh: bool },
    Gone,
}

impl Known {
    /// The path, a file or a folder, was removed or moved away.
    pub(crate) fn mark_gone(&mut self, path: &Path) {
        let Self { files, gone, .. } = self;
        gone.extend(below(files, path).map(|(path, _)| path.clone()));
    }

    /// The file was written to.
    pub(crate) fn mark_written(&mut self, path: &Path) {
        if self.files.contains_key(path) {
            self.written.insert(path.to_path_buf());
        }
    }

    /// A file is at the path.
    pub(crate) fn found(&mut self, path: &Path, id: FileId) {
        let fresh = id.is_fresh();
        if let Some(file) = self.files.get_mut(path)
            && file.id == id
            && !self.gone.contains(path)
            && !(file.fresh && self.written.contains(path))
        {
            file.fresh = fresh;
            file.walk = self.walk;
            self.findings.remove(path);
            self.written.remove(path);
            return;
        }
        self.findings.insert(path.to_path_buf(), Finding::There { id, fresh });
    }

    /// No file is at the path or below it.
    pub(crate) fn found_nothing(&mut self, path: &Path) {
        remove_below(&mut self.findings, path);
        let Self { files, findings, .. } = self;
        findings.extend(below(files, path).map(|(path, _)| (path.clone(), Finding::Gone)));
    }

    /// A walk begins; its findings replace the earlier ones below this folder.
    pub(crate) fn begin_walk(&mut self, folder: &Path) {
        self.walk += 1;
        remove_below(&mut self.findings, folder);
    }

    /// The walk could not read this path: the known files at and below it are kept.
    pub(crate) fn skip(&mut self, path: &Path) {
        let walk = self.walk;
        below_mut(&mut self.files, path).for_each(|(_, file)| file.walk = walk);
    }

    /// The walk is over: known files that it did not meet are gone.
    pub(crate) fn end_walk(&mut self, folder: &Path) {
        let Self { files, findings, walk, .. } = self;
        for (path, _) in below(files, folder).filter(|(_, file)| file.walk != *walk) {
            if !findings.contains_key(path) {
                findings.insert(path.clone(), Finding::Gone);
            }
        }
    }

    /// Turns the findings into changes, those of vanished files first.
    pub(crate) fn settle(&mut self) -> Vec<Change> {
        let mut vanished = Vec::new();
        let mut there = Vec::new();
        for (path, finding) in std::mem::take(&mut self.findings) {
            self.gone.remove(&path);
            self.written.remove(&path);
            match finding {
                Finding::Gone => {
                    if self.files.remove(&path).is_some() {
                        vanished.push(Change::Vanished { path });
                    }
                }
                Finding::There { id, fresh } => {
                    let file = File { id, fresh, walk: self.walk };
                    there.push(match self.files.insert(path.clone(), file) {
                        None => Change::Appeared { path, id },
                        Some(_) => Change::Replaced { path, id },
                    });
                }
            }
        }
        vanished.append(&mut there);
        vanished
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appeared(path: &str, inode: u64) -> Change {
        Change::Appeared { path: path.into(), id: FileId::fake(inode) }
    }

    fn replaced(path: &str, inode: u64) -> Change {
        Change::Replaced { path: path.into(), id: FileId::fake(inode) }
    }

    fn vanished(path: &str) -> Change {
        Change::Vanished { path: path.into() }
    }

    fn find(known: &mut Known, path: &str, inode: u64) {
        known.found(Path::new(path), FileId::fake(inode));
    }

    fn knowing(files: &[(&str, u64)]) -> Known {
        let mut known = Known::default();
        files.iter().for_each(|(path, inode)| find(&mut known, path, *inode));
        assert_eq!(known.settle().len(), files.len());
        known
    }

    #[test]
    fn the_same_file_again_is_no_change_unless_it_was_gone() {
        let mut known = knowing(&[("/r/a", 1), ("/r/d/b", 2)]);
        find(&mut known, "/r/a", 1);
        assert_eq!(known.settle(), []);
        known.mark_gone(Path::new("/r/a"));
        known.mark_gone(Path::new("/r/d"));
        known.mark_gone(Path::new("/r/stranger"));
        find(&mut known, "/r/a", 1);
        find(&mut known, "/r/d/b", 2);
        find(&mut known, "/r/stranger", 3);
        let changes = [replaced("/r/a", 1), replaced("/r/d/b", 2), appeared("/r/stranger", 3)];
        assert_eq!(known.settle(), changes);
        assert!(known.gone.is_empty());
    }

    /// Two writes within one tick of the filesystem's clock leave the same id.
    #[test]
    fn a_write_to_the_same_file_counts_while_its_id_cannot_tell() {
        let path = Path::new("/r/a");
        for (ago, replaced) in [(0, 1), (1, 0)] {
            let id = FileId::fake_written(std::time::Duration::from_secs(ago));
            let mut known = Known::default();
            known.found(path, id);
            assert_eq!(known.settle().len(), 1);
            known.mark_written(path);
            known.found(path, id);
            assert_eq!(known.settle().len(), replaced, "written {ago} s ago");
            known.found(path, id);
            assert_eq!(known.settle(), [], "no more than once");
        }
    }

    #[test]
    fn the_last_look_counts() {
        let mut known = knowing(&[("/r/a", 1)]);
        known.found_nothing(Path::new("/r/a"));
        find(&mut known, "/r/a", 1);
        assert_eq!(known.settle(), []);
        find(&mut known, "/r/a", 2);
        known.found_nothing(Path::new("/r/a"));
        find(&mut known, "/r/new", 3);
        known.found_nothing(Path::new("/r/new"));
        assert_eq!(known.settle(), [vanished("/r/a")]);
    }

    #[test]
    fn a_walk_makes_vanish_what_it_did_not_meet_and_could_have() {
        let files = [("/r/d/1", 1), ("/r/d/2", 2), ("/r/d/closed/3", 3), ("/r/else/4", 4)];
        let mut known = knowing(&files);
        known.begin_walk(Path::new("/r/d"));
        find(&mut known, "/r/d/2", 2);
        find(&mut known, "/r/d/5", 5);
        known.skip(Path::new("/r/d/closed"));
        known.end_walk(Path::new("/r/d"));
        assert_eq!(known.settle(), [vanished("/r/d/1"), appeared("/r/d/5", 5)]);
    }

    #[test]
    fn a_second_walk_overrules_the_first() {
        let mut known = knowing(&[("/r/a", 1), ("/r/b", 2)]);
        known.begin_walk(Path::new("/r"));
        find(&mut known, "/r/a", 1);
        find(&mut known, "/r/c", 3);
        known.end_walk(Path::new("/r"));
        known.begin_walk(Path::new("/r"));
        find(&mut known, "/r/b", 2);
        known.end_walk(Path::new("/r"));
        assert_eq!(known.settle(), [vanished("/r/a")]);
    }

    #[test]
    fn a_mark_waits_for_a_look() {
        let mut known = knowing(&[("/r/a", 1)]);
        known.mark_gone(Path::new("/r/a"));
        assert_eq!(known.settle(), []);
        known.begin_walk(Path::new("/r"));
        find(&mut known, "/r/a", 1);
        known.end_walk(Path::new("/r"));
        assert_eq!(known.settle(), [replaced("/r/a", 1)]);
    }

    #[test]
    fn a_quiet_walk_remembers_nothing() {
        let mut known = knowing(&[("/r/a", 1), ("/r/b", 2)]);
        known.begin_walk(Path::new("/r"));
        find(&mut known, "/r/a", 1);
        find(&mut known, "/r/b", 2);
        assert!(known.findings.is_empty());
        known.end_walk(Path::new("/r"));
        assert!(known.findings.is_empty());
    }
}
