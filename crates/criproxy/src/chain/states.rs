//! The state of each server in force, for metrics.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};

use super::server_conn::{ServerConn, ServerConns};

/// Reads the states at each scrape, so that removed servers leave no samples behind.
#[derive(Debug)]
pub(crate) struct ServerStates(pub(super) Arc<ServerConns>);

/// The name of a server's state in metrics.
const STATES: [&str; 3] = ["asked", "left-out", "untrusted"];

impl ServerConn {
    fn state(&self) -> &'static str {
        let [asked, left_out, untrusted] = STATES;
        match (self.refusal(), self.left_out()) {
            (Some(_), _) => untrusted,
            (None, Some(_)) => left_out,
            (None, None) => asked,
        }
    }
}

impl Collector for ServerStates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut family = encoder.encode_descriptor(
            "wharf_proxy_hook_server_state",
            "1 for the state of a hook server: asked, left-out since it hung, or untrusted",
            None,
            ConstGauge::new(0i64).metric_type(),
        )?;
        for conn in &*self.0.known() {
            for state in STATES {
                let labels = [("server", conn.server.name.as_str()), ("state", state)];
                let gauge = ConstGauge::new(i64::from(conn.state() == state));
                gauge.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
