//! Calls that hook servers are asked about, from kubelet to runtime: what koord-runtime-proxy gets
//! wrong, and everything that servers, runtimes and callers may do.

mod callers;
mod chain;
mod events;
mod faults;
mod hostile;
mod kubelet;
mod lookups;
mod lossless;
mod merge;
mod node;
mod operation;
mod partial;
mod past;
mod recovery;
mod restored;
mod samples;
mod secrets;
mod stops;
mod survival;
