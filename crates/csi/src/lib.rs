//! A CSI client: one connection per driver, cached capabilities, error classes, liveness.
//!
//! Upstream dials for each call and asks for capabilities before most of them. Here a [`Driver`]
//! owns one HTTP/2 connection for as long as the driver is registered. The state of that connection
//! shows whether the driver runs ([`Driver::link`]). Capabilities are fetched once per connection,
//! because a driver may restart as another version.
//!
//! Besides its code, an error has a class: [`class()`] says whether the driver did nothing, failed,
//! or may still be at work.
//!
//! ```no_run
//! use wharf_csi::{Driver, DriverOptions};
//!
//! # async fn example() -> Result<(), tonic::Status> {
//! let driver = Driver::new("/csi/csi.sock", DriverOptions::default());
//! let info = driver.plugin_info().await?;
//! let capabilities = driver.capabilities().await?;
//! println!("{} has {} controller RPCs", info.name, capabilities.controller.len());
//! # Ok(())
//! # }
//! ```
//!
//! - [`Driver`]: the connection and the calls.
//! - [`Calls`]: calls that continue after their callers have given up.
//! - [`Capabilities`], [`NodeCapabilities`], [`NodeInfo`]: answers of a driver.
//! - [`class()`], [`ErrorClass`]: what a failed call means.
//! - [`PAYLOADS`]: the log of requests and responses.

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
