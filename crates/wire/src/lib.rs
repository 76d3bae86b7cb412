//! Reads and edits protobuf messages on the wire, without knowing all of their fields.
//!
//! A proxy that decodes a message into its own types and encodes it again loses every field that it
//! does not know. Here a message stays a list of pieces of the original bytes, in their order. Only
//! the path to a changed field is decoded; all else is written byte for byte as received.
//!
//! - [`field`]: reads the fields of a message one by one.
//! - [`edit`]: changes fields of a message.
//! - [`frame`]: splits a gRPC body into messages.
//!
//! No I/O, no async, no panics: hostile bytes result in an error.

pub mod edit;
pub mod field;
pub mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod varint;

pub use edit::{Message, last_bytes};
pub use field::{Field, Fields, Value, WireError, fields};
pub use frame::{Frame, FrameError, Frames};
