//! Node-level disk operations by system calls: mount, attach, format, grow, clone, freeze.
//!
//! All functions are synchronous and may block for as long as a disk does; callers with an event
//! loop run them on a thread pool. The crate keeps no state: it asks the kernel each time what is
//! mounted and attached, and each operation may be repeated.
//!
//! The only programs run are `mkfs.*`, `e2fsck`, `xfs_repair`, `resize2fs` and `e2undo`, without a
//! shell and with a deadline. mount(8) is not among them: the kernel's newer mount calls return the
//! kernel's reason for a refusal, create a read-only bind mount in one step, and take the target as
//! a handle, so that no symlink can be placed there between a check and the mount.
//!
//! - [`mountinfo`], [`mount`], [`paths`]: list mounts, mount and unmount, check paths.
//! - [`mounted`]: a mounted filesystem held by its root, so that operations cannot hit another
//!   filesystem.
//! - [`loopdev`]: image files as block devices; [`holders`]: the users of one.
//! - [`probe`], [`format`](mod@format), [`check`], [`grow`], [`undo`]: the filesystem inside an
//!   image or a device.
//! - [`clone`](mod@clone), [`extents`], [`unshare`], [`space`], [`attribute`], [`sync`]: image
//!   files on their pool.
//! - [`freeze`]: blocks writes to a filesystem while it is cloned.
//! - [`heap`]: memory of a process with many blocked threads; [`inherited`]: descriptors of a
//!   parent process.
//! - [`programs`]: runs the programs above.
//!
//! Unsafe code is only in the private module `sys`: one small function per system call that has no
//! safe wrapper.

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
