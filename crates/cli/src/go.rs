//! Durations, integers, floats and quoting, in Go's notation.
//!
//! Charts contain values such as `1m30s`, `0x10` or `.5h`: these functions accept the texts that
//! Go's standard library accepts, and reject others with its messages.

mod duration;
mod number;
mod quote;

pub use duration::{DurationError, format_duration, parse_duration};
pub use number::{NumberError, parse_bool, parse_float, parse_int, parse_uint};
pub use quote::{quote, visible, visible_json};
