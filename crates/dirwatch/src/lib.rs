//! A folder or tree watched with inotify, as a stream of what is there and what is gone.
//!
//! [`DirWatch`] reports the sockets (or regular files) below a root: first those that are there, then
//! [`Change::Synced`], then each change as it happens. What inotify leaves to its users is done here:
//!
//! - **Watch first, scan after**, for the root and each folder below it, so that nothing slips
//!   between the two.
//! - **Look, then listen again.** An event only says where to look. After a look the queue of events
//!   is read once more, and what they touch is looked at again, before anything is reported. So a
//!   file that was re-made any number of times between two reports is one [`Change::Replaced`], and
//!   a scan never repeats what an event is about to say.
//! - **Not to know is not to be gone.** Only a clear "no such file" makes a path vanish. A folder
//!   that cannot be read (no file descriptors left, no permission) keeps what was known of it, and
//!   [`Change::Trouble`] says so.
//! - **Nothing is lost for good.** A full event queue, a root that is removed or moved away and back,
//!   a kernel without watches to give: each leads to a scan, and a scan every [`Options::rescan`] is
//!   the net below all of that.
//!
//! Names that start with a dot are ignored at every level, but for `..data` of a ConfigMap volume: its
//! files are links through it, and all of them are looked at when it is replaced. A symlink to a file counts as that file;
//! a symlink to a folder is not followed.
//!
//! - `options`, `change`: what goes in and comes out.
//! - `look`: what is at a path.
//! - `scan`: what is below a folder.
//! - `known`: what was reported, and the changes that looks make to it; no I/O.
//! - `listener`: inotify, its watches, and what its events mean.
//! - `health`: what is wrong, and what was said about it; no I/O.
//! - `tree`: a pass of listening and looking until both agree.
//! - `watch`: the task that makes passes when there is reason to, and [`DirWatch`] that owns it.

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
