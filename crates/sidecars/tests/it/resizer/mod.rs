//! The resizer.

mod bench;
mod driver;
mod expand;
mod faults;
mod in_use;
mod lines;
mod local;
mod modify;
mod node;
mod reasons;
