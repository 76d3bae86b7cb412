//! Durations, integers, floats and quoting as Go reads and writes them.
//!
//! Charts carry values such as `1m30s`, `0x10` or `.5h`: what Go's standard library accepts is
//! accepted here, what it refuses is refused with its words.

mod duration;
mod number;
mod quote;

pub use duration::{DurationError, format_duration, parse_duration};
pub use number::{NumberError, parse_bool, parse_float, parse_int, parse_uint};
pub use quote::{quote, visible, visible_json};
