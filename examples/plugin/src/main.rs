//! A node plugin that registers itself.
fn main() {}
