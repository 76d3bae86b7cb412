//! The controllers on a real kube-apiserver, with a driver that does as it is told. Each test asserts what was written to
//! the API and asked of the driver, in order.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod attach;
mod audit;
mod bench;
mod codes;
mod detach;
mod driver;
mod extremes;
mod faults;
mod journal;
mod lanes;
mod local;
mod provisioner;
mod reasons;
mod resizer;
mod role;
mod scripted;
mod snapshot_controller;
mod snapshots;
mod snapshotter;
mod stage;
mod trivial;
mod volumes;
mod watches;
mod wire;
