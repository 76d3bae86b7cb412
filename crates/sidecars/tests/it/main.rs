//! The controllers on a real kube-apiserver, with a scripted driver. Each test asserts the writes
//! to the API and the calls of the driver, in order.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

mod attach;
mod audit;
mod codes;
mod detach;
mod driver;
mod extremes;
mod fairness;
mod faults;
mod fixture;
mod journal;
mod local;
mod provisioner;
mod resizer;
mod role;
mod scripted;
mod snapshot_controller;
mod snapshots;
mod snapshotter;
mod stage;
mod triggers;
mod trivial;
mod volumes;
mod watches;
mod wire;
