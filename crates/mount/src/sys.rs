//! System calls that no safe wrapper exists for, one small function each.
//!
//! This module and those below it are the only ones with unsafe code. They turn numbers and
//! structures into types, and decide nothing.

#![expect(unsafe_code, reason = "what safe wrappers cover is called through them, elsewhere")]

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
