//! A CSI client: one connection per driver, cached capabilities, error classes, liveness.
//!
//! Upstream dials anew for each call and asks for capabilities before most of them. Here a [`Driver`] owns one HTTP/2
//! connection for as long as the driver is registered. Its state is the driver's liveness ([`Driver::link`]), and
//! what the driver said it can do is asked once per connection, because a driver may come back as another version.
//!
//! An error of a call is more than a code: [`class()`] tells whether the driver certainly did nothing, certainly
//! failed, or may still be at work.

mod calls;
mod capabilities;
mod class;
mod driver;
mod payloads;

pub use calls::Calls;
pub use capabilities::{Capabilities, NodeCapabilities};
pub use class::{ErrorClass, class};
pub use driver::{Driver, DriverOptions, NodeInfo};
pub use payloads::PAYLOADS;

/// How long a call to a driver may take unless the caller says otherwise; the figure is kubelet's.
pub const CALL_TIMEOUT: std::time::Duration = std::time::Duration::from_mins(2);
