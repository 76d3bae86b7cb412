//! The handler of `CSIPlugin`s: connects to CSI drivers and publishes them in the Node and CSINode
//! objects.
//!
//! [`CsiHandler`] keeps the drivers of the node: [`Drivers`], with several instances of a name
//! while an update runs old and new side by side. [`node`] writes the drivers' node information to
//! the API; it owns the CSINode object and a few keys of the Node.

mod allocatable;
mod drivers;
mod handler;
pub mod node;

pub use allocatable::AllocatableRefresh;
pub use drivers::{DriverView, Drivers};
pub use handler::{CsiHandler, CsiOptions};
