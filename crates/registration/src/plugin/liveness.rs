//! The liveness probe: whether the driver answers `Probe` and is ready.

use std::{path::Path, time::Duration};

use tracing::warn;
use wharf_csi::{Driver, DriverOptions};
use wharf_uds::{RpcMetrics, code_name};

/// How long to wait for the driver before the first log line, doubled for each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_secs(10);
/// Limit for a `GetPluginInfo` at the start; the call is repeated until it succeeds.
const QUESTION: Duration = Duration::from_secs(10);
/// Pause after a connected driver returned no name.
const PAUSE: Duration = Duration::from_secs(1);

/// Waits until the driver returns its name.
pub async fn driver_name(socket: &Path, metrics: Option<RpcMetrics>) -> String {
    let driver = Driver::new(
        socket,
        DriverOptions { timeout: QUESTION, metrics, ..DriverOptions::default() },
    );
    let mut wait = FIRST_WAIT;
    loop {
        let problem = match driver.connected(wait).await {
            Err(error) => error.to_string(),
            Ok(()) => match driver.plugin_info().await {
                Ok(info) if !info.name.is_empty() => return info.name,
                Ok(_) => "GetPluginInfo returned an empty name".to_owned(),
                Err(status) => format!("{}: {}", code_name(status.code()), status.message()),
            },
        };
        warn!(socket = %socket.display(), error = %problem, "waiting for the CSI driver");
        if driver.is_connected() {
            tokio::time::sleep(PAUSE).await;
        }
        wait = (wait * 2).min(LAST_WAIT);
    }
}

/// Probes the driver over a new connection: a stuck connection must not hide a healthy driver, nor
/// a working one a driver that accepts no more. The error is the body of the answer 500.
pub async fn check(
    socket: &Path,
    timeout: Duration,
    metrics: Option<RpcMetrics>,
) -> Result<(), String> {
    let driver =
        Driver::new(socket, DriverOptions { timeout, metrics, ..DriverOptions::default() });
    match driver.probe().await {
        Ok(true) => Ok(()),
        Ok(false) => Err("driver responded but is not ready".to_owned()),
        Err(status) => Err(format!(
            "rpc error: code = {} desc = {}",
            code_name(status.code()),
            status.message()
        )),
    }
}
