//! The resizer.

mod classes;
mod codes;
mod driver;
mod expand;
mod extremes;
mod faults;
mod fixture;
mod foreign;
mod in_use;
mod lines;
mod local;
mod modify;
mod node;
mod triggers;
mod waits;
