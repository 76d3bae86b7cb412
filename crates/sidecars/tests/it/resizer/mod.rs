//! The resizer.

mod bench;
mod classes;
mod codes;
mod driver;
mod expand;
mod extremes;
mod faults;
mod foreign;
mod in_use;
mod lines;
mod local;
mod modify;
mod node;
mod reasons;
mod waits;
