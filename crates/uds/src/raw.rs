//! Calls that are relayed unchanged.
//!
//! A proxy knows few of the messages that it carries, and must lose nothing of the others. So it
//! relays the HTTP/2 stream, not the call: a header list, data in the pieces in which it arrives,
//! trailers, or a reset with its code. This is built on h2, one layer below the rest of this crate,
//! because hyper drops the code of a reset and adds headers of its own.
//!
//! Nothing is buffered. A piece of data is read when the other side has room for it, and the sender
//! gets its window back when the piece was sent, so a slow reader slows its writer, and a message
//! of any size takes little memory.
//!
//! A proxy that has to read a unary call takes its message ([`RawCall::message`]), asks the server
//! with the same or another message ([`Relay::ask`]), and answers with the result
//! ([`RawCall::answer`]). Metadata, trailers and the code of a reset still pass unchanged.

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

pub use self::{
    ask::RawAnswer,
    call::RawCall,
    carry::Carried,
    relay::{Relay, RelayOptions, probe},
};
