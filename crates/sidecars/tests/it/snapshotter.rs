//! The snapshotter alone: the test creates contents.

mod codes;
mod create;
mod delete;
mod extremes;
mod given;
mod lines;
mod others;
