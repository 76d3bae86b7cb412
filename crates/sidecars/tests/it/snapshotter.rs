//! The snapshotter alone: someone else makes contents.

mod create;
mod delete;
mod given;
mod lines;
mod others;
