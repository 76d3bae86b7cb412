//! Chains of real servers, on sockets in a temporary folder.

mod answers;
mod breaker;
mod conflicts;
mod explained;
mod faults;
mod fixture;
mod log;
mod order;
mod outcomes;
mod peers;
mod server;
mod subject;
