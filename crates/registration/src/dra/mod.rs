//! The handler of `DRAPlugin`s: which drivers there are, at which endpoints, and whether they are connected.

mod handler;

pub use handler::{DraHandler, DraView};
