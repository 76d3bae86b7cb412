//! The snapshot controller alone, where a snapshotter is someone who patches contents, and both together.

mod class;
mod crds;
mod delete;
mod dynamic;
mod given;
mod lines;
mod together;
