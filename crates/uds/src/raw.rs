//! Calls that are passed on as they come.
//!
//! A proxy knows few of the messages that it carries, and must lose nothing of the others. So what
//! is passed on here is the HTTP/2 stream and not the call: a header list, data in whatever pieces
//! it comes, trailers, or a reset with its code. This is built on h2, one layer below the rest of
//! this crate, because hyper takes the code off a reset and adds headers of its own.
//!
//! Nothing is collected. A piece of data is taken when the other side has room for it, and the
//! sender gets its window back when it has left, so a slow reader slows its writer, and a message
//! of any size takes little memory.
//!
//! A proxy that has to know what a call says takes its one message out ([`RawCall::message`]), asks
//! the server with that or another one ([`Relay::ask`]), and answers with what came back
//! ([`RawCall::answer`]). Metadata, trailers and the code of a reset still pass as they came.

mod ask;
mod bulk;
mod call;
mod carry;
mod loss;
mod overflow;
mod patience;
mod pump;
mod relay;
mod serve;

pub use self::ask::RawAnswer;
pub use self::call::RawCall;
pub use self::carry::Carried;
pub use self::relay::{Relay, RelayOptions, probe};
