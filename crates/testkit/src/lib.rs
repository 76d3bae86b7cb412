//! Test bench: scripted plugins and drivers, real peers, a cluster in a folder.
//!
//! For tests in `tests/` folders and for tasks only; nothing that is shipped depends on it.
//!
//! * [`peers`]: programs of other projects, built once by `cargo xtask peers`
//! * [`cluster`]: etcd, kube-apiserver and optionally the rest of a cluster, all real, in one
//!   temporary folder
//! * [`deploy`]: the manifests of deploy/, for tests
//! * [`docs`]: shell commands of the README and the docs
//! * [`process`]: child processes that end with their test
//! * [`plugin`], [`csi_driver`], [`device_plugin`]: scripted servers, with faults on demand
//! * [`client`]: calls by method name, with bytes
//! * [`koord`]: koordinator's runtime proxy and hook server
//! * [`hostile`]: a client that attacks an HTTP/2 server
//! * [`hook_server`]: a hook server that records its calls, and answers by script
//! * [`runtime`]: a container runtime that records its calls, byte for byte
//! * [`relay`]: a connection to the API server or a driver that can be cut
//! * [`rig`]: a cluster with wharf deployed on its node
//! * [`sanity`]: csi-sanity, run against a driver
//! * [`skip`]: records tests that cannot run on this machine

pub mod client;
pub mod cluster;
pub mod csi_driver;
pub mod deploy;
pub mod device_plugin;
pub mod docs;
mod front;
pub mod hook_server;
pub mod hostile;
pub mod koord;
pub mod peers;
pub mod plugin;
pub mod process;
pub mod relay;
pub mod rig;
pub mod runtime;
pub mod sanity;
pub mod script;
pub mod skip;
