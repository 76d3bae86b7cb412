use std::{path::Path, time::Duration};

use async_trait::async_trait;
use tonic::Status;
use wharf_proto::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, registration_client::RegistrationClient,
};
use wharf_uds::{Channel, ChannelOptions, timed, within};

/// Kubelet's limit for `GetInfo`.
const INFO_TIMEOUT: Duration = Duration::from_secs(1);
/// Kubelet's limit for `NotifyRegistrationStatus`.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to plugins. The product dials the socket; tests script the answers.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    /// Connects to a registration socket, waiting at most `patience`.
    async fn dial(
        &self,
        socket: &Path,
        patience: Duration,
    ) -> Result<Box<dyn Conversation>, String>;
}

/// A connected plugin.
#[async_trait]
pub trait Conversation: Send {
    /// Calls `GetInfo`.
    async fn info(&mut self) -> Result<PluginInfo, Status>;
    /// Calls `NotifyRegistrationStatus`.
    async fn notify(&mut self, registered: bool, error: &str) -> Result<(), Status>;
}

/// Dials unix sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketDial;

#[async_trait]
impl Dial for SocketDial {
    async fn dial(
        &self,
        socket: &Path,
        patience: Duration,
    ) -> Result<Box<dyn Conversation>, String> {
        let channel = Channel::new(socket, ChannelOptions::default());
        channel.connected(patience).await.map_err(|error| error.to_string())?;
        Ok(Box::new(Connected(RegistrationClient::new(channel))))
    }
}

struct Connected(RegistrationClient<Channel>);

#[async_trait]
impl Conversation for Connected {
    async fn info(&mut self) -> Result<PluginInfo, Status> {
        let answer =
            within(INFO_TIMEOUT, "GetInfo", self.0.get_info(timed(InfoRequest {}, INFO_TIMEOUT)));
        Ok(answer.await?.into_inner())
    }

    async fn notify(&mut self, registered: bool, error: &str) -> Result<(), Status> {
        let status = RegistrationStatus { plugin_registered: registered, error: error.to_owned() };
        let call = self.0.notify_registration_status(timed(status, NOTIFY_TIMEOUT));
        within(NOTIFY_TIMEOUT, "NotifyRegistrationStatus", call).await?;
        Ok(())
    }
}
