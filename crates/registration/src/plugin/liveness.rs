//! The liveness probe: is the driver there, and does it call itself ready?

use std::{path::Path, time::Duration};

use tracing::warn;
use wharf_csi::{Driver, DriverOptions};
use wharf_uds::{RpcMetrics, code_name};

/// How long the driver is waited for before that is mentioned, and then again, doubling.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_secs(10);
/// How long one question at the start may take; it is asked again and again.
const QUESTION: Duration = Duration::from_secs(10);
/// Between two questions to a driver that is connected and does not say its name.
const PAUSE: Duration = Duration::from_secs(1);

/// Waits until the driver said its name once. Nobody is told anything about it before that.
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

/// One probe over a connection of its own: a connection that is stuck must not hide a driver that is well, nor the
/// other way round. The error is what the answer 500 says.
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
