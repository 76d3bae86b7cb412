//! What a node does to disks: mount, attach, format, grow, clone, freeze; by system calls.
//!
//! Everything here is synchronous and may block for as long as a disk does; callers with an event
//! loop run it on a pool of threads for that. Nothing here keeps state: what is mounted and what is
//! attached is asked of the kernel each time, and each operation may be repeated.
//!
//! No program but `mkfs.*`, `e2fsck`, `xfs_repair`, `resize2fs` and `e2undo` is run, never through a shell, and
//! never past a deadline. In particular no mount(8): the kernel's newer calls give its own reason
//! for a refusal, make a read-only bind in one step, and name the target by a handle, so that
//! no symlink can be slipped in between a check and its use.
//!
//! - [`mountinfo`], [`mount`], [`paths`]: what is mounted where; to mount and to unmount.
//! - [`mounted`]: a mounted filesystem, held by its root, so that what is done to it is done to no other.
//! - [`loopdev`]: image files as block devices; [`holders`]: who else uses one.
//! - [`probe`], [`format`](mod@format), [`check`], [`grow`], [`undo`]: the filesystem inside an image or a device.
//! - [`clone`](mod@clone), [`extents`], [`space`], [`attribute`], [`sync`]: image files on their pool.
//! - [`freeze`]: a filesystem that holds still while it is cloned, and is thawed whatever happens.
//! - [`heap`]: the memory of a process whose threads wait for disks; [`inherited`]: files that it was started with.
//! - [`programs`]: the few programs that are run, and how.
//!
//! Unsafe code is in the private module `sys` only: one small function per system call that no safe
//! wrapper exists for.

pub mod attribute;
pub mod check;
pub mod clone;
pub mod extents;
pub mod format;
pub mod freeze;
pub mod grow;
pub mod heap;
pub mod holders;
pub mod inherited;
pub mod loopdev;
pub mod mount;
pub mod mounted;
pub mod mountinfo;
pub mod paths;
pub mod probe;
pub mod programs;
pub mod space;
pub mod sync;
pub mod undo;
pub mod unshare;

mod error;
mod filesystem;
mod sys;

pub use error::{Error, Result};
pub use filesystem::{Filesystem, UnknownFilesystem};
