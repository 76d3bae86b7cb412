//! Hook servers on real sockets, called like a proxy does.

#![allow(clippy::unwrap_used, missing_docs)]

mod adjusting;
mod koordinator;
mod leaving;
mod outcomes;
mod support;
