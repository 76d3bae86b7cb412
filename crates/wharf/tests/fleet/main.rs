//! The sidecars as a cluster runs them: processes of ours and of others side by side, exchanged and
//! killed.
//!
//! The API server is real, the driver keeps a ledger of what it is asked, and the tests do what
//! kube-controller-manager would: they bind, attach, release. Judged are the objects that are left,
//! and the ledger.

#![allow(clippy::unwrap_used, missing_docs, reason = "helpers of tests, too, fail by panicking")]

mod alerts;
mod alike;
mod api;
mod audit;
#[path = "../charts/lines.rs"]
mod chart_lines;
mod charts;
mod defaults;
mod drivers;
mod flags;
mod frozen;
mod kill_points;
mod kills;
mod ledger;
mod life;
mod limits;
mod mixed;
mod mock;
mod nodes;
mod not_served;
mod partition;
mod program;
mod readiness;
mod replicas;
mod resigned;
mod rights;
mod role;
mod rolling;
mod same_host;
mod secrets;
mod sidecar;
mod site;
mod standby;
mod stopped;
mod unsettled;
mod upstream_roles;
