//! The handler of `DRAPlugin`s: keeps a connection to each endpoint of each DRA driver.

mod handler;

pub use handler::{DraHandler, DraView};
