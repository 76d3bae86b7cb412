//! The snapshot controller alone, with a test that patches contents as a snapshotter, and both
//! together.

mod class;
mod crds;
mod delete;
mod dynamic;
mod given;
mod lines;
mod together;
