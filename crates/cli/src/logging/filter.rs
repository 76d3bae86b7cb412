use tracing::{Level, Metadata, level_filters::LevelFilter};

use super::VModule;

/// klog's verbosity for DEBUG.
pub(super) const DEBUG: u32 = 4;

/// klog's verbosity for the content of calls to CSI drivers, from upstream's sidecars, and the
/// target of these events.
const PAYLOAD: u32 = 5;
const PAYLOADS: &str = "wharf_csi::payloads";

/// klog's verbosity for TRACE.
pub(super) const TRACE: u32 = 6;

/// klog's verbosity for DEBUG events of libraries: from there on client-go logs its requests.
const LIBRARY_DEBUG: u32 = 8;

/// Libraries that log every frame. Their TRACE events never show, since they may contain secrets.
const LIBRARIES: &[&str] = &[
    "axum",
    "h2",
    "hyper",
    "hyper_util",
    "kube",
    "kube_client",
    "mio",
    "rustls",
    "tokio",
    "tokio_util",
    "tonic",
    "tower",
    "want",
];

/// Decides which events show.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) verbosity: u32,
    pub(super) vmodule: VModule,
}

impl Filter {
    pub(super) fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let crate_name = metadata.target().split("::").next().unwrap_or_default();
        let library = LIBRARIES.contains(&crate_name);
        let needed = match *metadata.level() {
            Level::DEBUG if library => LIBRARY_DEBUG,
            Level::TRACE if library => return false,
            Level::DEBUG if metadata.target() == PAYLOADS => PAYLOAD,
            Level::DEBUG => DEBUG,
            Level::TRACE => TRACE,
            _ => return true,
        };
        let of_file = || self.vmodule.level(metadata.file(), metadata.module_path());
        self.verbosity >= needed || of_file().is_some_and(|level| level >= needed)
    }

    /// The most verbose level that can show.
    pub(super) fn max_level(&self) -> LevelFilter {
        match self.verbosity.max(self.vmodule.max_level()) {
            TRACE.. => LevelFilter::TRACE,
            DEBUG.. => LevelFilter::DEBUG,
            _ => LevelFilter::INFO,
        }
    }
}
