//! Hook servers on real sockets, asked as a proxy asks.

#![allow(clippy::unwrap_used, missing_docs)]

mod adjusting;
mod koordinator;
mod leaving;
mod outcomes;
mod support;
