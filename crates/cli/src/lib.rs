//! What every command shares: Go-compatible flags, feature gates, logs, the admin endpoint.
//!
//! wharf answers under the names of the Go programs that it replaces, started by the charts and
//! manifests that people already have. So the command line has to mean here what it means there:
//! [`flags`] follows Go's `flag` and `pflag` packages to the wording of their errors, [`gates`]
//! follows `--feature-gates`, and [`logging`] takes klog's flags and writes klog's lines. One rule
//! holds for all of them: a flag that is accepted is obeyed, or a warning says that it is not.
//!
//! | module | holds |
//! |---|---|
//! | [`flags`] | [`FlagSet`], [`Flag`], [`Parsed`]: command lines as Go programs read them |
//! | [`gates`] | [`FeatureGates`]: known, removed and locked gates |
//! | [`logging`] | [`LoggingFlags`], [`LogOptions`]: klog's text and JSON lines out of `tracing` |
//! | [`admin`] | [`Admin`]: health checks and metrics over HTTP |
//! | [`common`] | rules between flags, the termination message |
//! | [`go`] | durations, integers and quoting as Go reads and writes them |
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
pub use flags::{Dialect, Flag, FlagError, FlagSet, FlagValue, JointFlags, JointLine, Parsed};
pub use gates::{FeatureGates, Gate, Stage};
pub use logging::{LogError, LogFormat, LogGuard, LogOptions, LoggingFlags, VModule};
