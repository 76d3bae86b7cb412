use tokio::sync::mpsc;
use tonic::{Request, Response, Status};
use tracing::info;
use wharf_proto::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
    registration_server::{Registration, RegistrationServer},
};
use wharf_uds::Routes;

/// Verdicts that may wait to be read; further ones are dropped.
const BACKLOG: usize = 16;

/// The node's answer to the registration of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node registered the plugin.
    Registered,
    /// The node rejected the plugin, for this reason.
    Refused(String),
}

/// The `Registration` service of a plugin, and a channel with the node's verdicts.
pub fn serve_registration(info: PluginInfo) -> (Routes, mpsc::Receiver<Verdict>) {
    let (verdicts, receiver) = mpsc::channel(BACKLOG);
    (Routes::new(RegistrationServer::new(Service { info, verdicts })), receiver)
}

struct Service {
    info: PluginInfo,
    verdicts: mpsc::Sender<Verdict>,
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        info!(name = %self.info.name, "received GetInfo call");
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        info!(registered = status.plugin_registered, error = %status.error, "received NotifyRegistrationStatus call");
        let verdict = match status.plugin_registered {
            true => Verdict::Registered,
            false => Verdict::Refused(status.error),
        };
        // A full channel means that the plugin reads no verdicts; the node's call must not block on
        // that.
        let _ = self.verdicts.try_send(verdict);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
