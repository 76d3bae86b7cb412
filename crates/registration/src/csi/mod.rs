//! The handler of `CSIPlugin`s: from a registered socket to a driver that the node and the cluster know.
//!
//! [`CsiHandler`] keeps the drivers of the node: [`Drivers`], several instances per name where an update runs old and
//! new side by side. What a driver says about the node is written to the API by [`node`], which owns the CSINode object
//! and a few keys of the Node.

mod allocatable;
mod drivers;
mod handler;
pub mod node;

pub use allocatable::AllocatableRefresh;
pub use drivers::{DriverView, Drivers};
pub use handler::{CsiHandler, CsiOptions};
