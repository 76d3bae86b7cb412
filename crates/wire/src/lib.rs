//! Protobuf messages read and edited on the wire, without knowing all of their fields.
//!
//! A proxy that decodes a message into its own types and encodes it again loses every field that it does not know. Here a
//! message stays a list of pieces of the original bytes, in their order; only along the path to a changed field is it taken
//! apart, and what is not changed is written as it came, byte for byte.
//!
//! - [`field`]: the fields of a message, one after another.
//! - [`edit`]: a message under change.
//! - [`frame`]: the messages in a gRPC body.
//!
//! No I/O, no async, no panics: hostile bytes give an error.

pub mod edit;
pub mod field;
pub mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod varint;

pub use edit::{Message, last_bytes};
pub use field::{Field, Fields, Value, WireError, fields};
pub use frame::{Frame, FrameError, Frames};
