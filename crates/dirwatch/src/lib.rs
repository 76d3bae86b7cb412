//! A folder or tree watched with inotify, as a stream of files that appear and vanish.
//!
//! [`DirWatch`] reports the sockets (or regular files) below a root: first those that exist, then
//! [`Change::Synced`], then each change as it happens. On top of inotify it provides:
//!
//! * **Watch first, scan after**, for the root and each folder below it, so that no change falls
//!   between the two.
//! * **Look, then read events again.** An event only says where to look. After a look the event
//!   queue is read once more, and the paths of these events are looked at again, before anything is
//!   reported. So a file that was remade any number of times between two reports is one
//!   [`Change::Replaced`], and a scan never repeats the change of a pending event.
//! * **An error is not an absence.** Only a clear "no such file" makes a path vanish. A folder that
//!   cannot be read (no file descriptors left, no permission) keeps its known files, and
//!   [`Change::Trouble`] says so.
//! * **Missed events are found by a scan.** A full event queue, a root that is removed or moved
//!   away and back, a kernel without free watches: each leads to a scan. Besides, there is a scan
//!   every [`Options::rescan`].
//!
//! Names that start with a dot are ignored at every level, except `..data` of a ConfigMap volume:
//! its files are symlinks through it, and all of them are looked at when it is replaced. A symlink
//! to a file counts as that file; a symlink to a folder is not followed.
//!
//! * `options`, `change`: the settings, and the changes reported.
//! * `look`: the file at a path.
//! * `scan`: the files below a folder.
//! * `known`: the files reported so far, and the changes that looks make to them; no I/O.
//! * `listener`: inotify, its watches, and the meaning of its events.
//! * `health`: the faults of a watch, and which were reported; no I/O.
//! * `tree`: a pass of reading events and looking until both agree.
//! * `watch`: the task that makes passes on events, and [`DirWatch`] that owns it.

mod change;
mod counters;
mod health;
mod known;
mod listener;
mod look;
mod options;
mod scan;
mod subtree;
mod tree;
mod watch;

pub use change::Change;
pub use counters::Counters;
pub use look::FileId;
pub use options::{Depth, Kind, Options};
pub use scan::scan;
pub use watch::DirWatch;
