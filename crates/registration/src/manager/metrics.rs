use std::{sync::Arc, time::Duration};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{counter::Counter, family::Family, gauge::ConstGauge, histogram::Histogram},
    registry::Registry,
};

use super::plugin_state::PluginState;

/// Metrics of a manager. Clones share them; nothing is exported before
/// [`ManagerMetrics::register`].
#[derive(Clone, Debug)]
pub struct ManagerMetrics {
    registrations: Family<Kind, Counter>,
    deregistrations: Family<Kind, Counter>,
    failures: Counter,
    seconds: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    r#type: String,
}

impl Default for ManagerMetrics {
    fn default() -> Self {
        let seconds =
            [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];
        Self {
            registrations: Family::default(),
            deregistrations: Family::default(),
            failures: Counter::default(),
            seconds: Histogram::new(seconds),
        }
    }
}

impl ManagerMetrics {
    /// Exports the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "wharf_plugin_registrations",
            "Plugins registered, by type",
            self.registrations.clone(),
        );
        registry.register(
            "wharf_plugin_deregistrations",
            "Plugins deregistered, by type",
            self.deregistrations.clone(),
        );
        registry.register(
            "wharf_plugin_registration_failures",
            "Attempts to register a plugin that failed",
            self.failures.clone(),
        );
        registry.register(
            "wharf_plugin_registration_seconds",
            "Time of a successful registration, from the start of the operation",
            self.seconds.clone(),
        );
    }

    pub(crate) fn registered(&self, kind: &str, took: Duration) {
        self.registrations.get_or_create(&Kind { r#type: kind.to_owned() }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn deregistered(&self, kind: &str) {
        self.deregistrations.get_or_create(&Kind { r#type: kind.to_owned() }).inc();
    }

    pub(crate) fn failed(&self) {
        self.failures.inc();
    }
}

/// The kubelet's `plugin_manager_total_plugins`, computed when it is collected.
pub(crate) struct Totals(pub(crate) Arc<PluginState>);

impl std::fmt::Debug for Totals {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Totals")
    }
}

impl Collector for Totals {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let (desired, actual) = self.0.totals();
        let one = ConstGauge::new(1i64);
        let mut totals = encoder.encode_descriptor(
            "plugin_manager_total_plugins",
            "Number of plugins in Plugin Manager",
            None,
            one.metric_type(),
        )?;
        for (state, sockets) in
            [("desired_state_of_world", desired), ("actual_state_of_world", actual)]
        {
            for socket in sockets {
                let labels =
                    [("socket_path", socket.display().to_string()), ("state", state.to_owned())];
                one.encode(totals.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
