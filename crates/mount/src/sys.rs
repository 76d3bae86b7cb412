//! System calls without a safe wrapper, one small function each.
//!
//! This module and its submodules are the only ones with unsafe code. They convert numbers and
//! structures to types, and contain no logic.

#![expect(unsafe_code, reason = "these system calls have no safe wrapper")]

pub(crate) mod block;
pub(crate) mod child;
pub(crate) mod clone;
pub(crate) mod code;
pub(crate) mod fiemap;
pub(crate) mod fs;
pub(crate) mod heap;
pub(crate) mod inherited;
pub(crate) mod loops;
pub(crate) mod mount;
