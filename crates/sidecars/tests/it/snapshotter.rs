//! The snapshotter alone: someone else makes contents.

mod codes;
mod create;
mod delete;
mod extremes;
mod given;
mod lines;
mod others;
