//! Shared by all commands: Go-compatible flags, feature gates, logs, the admin endpoint.
//!
//! wharf runs under the names of the Go programs that it replaces, started by existing charts and
//! manifests. So a command line must have the same meaning: [`flags`] follows Go's `flag` and
//! `pflag` packages down to their error texts, [`gates`] follows `--feature-gates`, and [`logging`]
//! accepts klog's flags and writes klog's lines. A flag that is accepted has its effect, or a
//! warning says that it has none.
//!
//! | module | holds |
//! |---|---|
//! | [`flags`] | [`FlagSet`], [`Flag`], [`Parsed`]: command lines in Go's syntax |
//! | [`gates`] | [`FeatureGates`]: known, removed and locked gates |
//! | [`logging`] | [`LoggingFlags`], [`LogOptions`]: klog's lines from `tracing` events |
//! | [`admin`] | [`Admin`]: health checks and metrics over HTTP |
//! | [`common`] | rules between flags, the container's termination message |
//! | [`go`] | durations, integers and quoting in Go's notation |
//!
//! ```
//! use wharf_cli::FlagSet;
//!
//! let mut flags = FlagSet::new("csi-node-driver-registrar", "Registers a CSI driver.");
//! let address = flags.string("csi-address", "/run/csi/socket", "Path of the driver's socket.");
//! let parsed = flags.parse(["-csi-address", "/csi/csi.sock"])?;
//! assert_eq!(parsed.get(&address), "/csi/csi.sock");
//! # Ok::<(), wharf_cli::FlagError>(())
//! ```

pub mod admin;
pub mod common;
pub mod flags;
pub mod gates;
pub mod go;
pub mod logging;

pub use admin::{Admin, AdminError, BoundAdmin, CheckFailure, process_metrics};
pub use common::{exclusive, required, write_termination_message};
pub use flags::{
    CombinedFlags, CombinedLine, Dialect, Flag, FlagError, FlagSet, FlagValue, Parsed,
};
pub use gates::{FeatureGates, Gate, Stage};
pub use logging::{LogError, LogFormat, LogGuard, LogOptions, LoggingFlags, VModule};
