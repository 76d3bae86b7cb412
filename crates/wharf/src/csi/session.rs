use std::fmt::Debug;

use tonic::{Code, Request, Response, Status};
use tracing::debug;
use wharf_csi::Driver;
use wharf_proto::csi::{
    GroupControllerGetCapabilitiesRequest, group_controller_service_capability,
};
use wharf_uds::DialError;

use super::{
    failure::Failure,
    need::{Need, Service},
    secrets::Secrets,
};

/// A driver to call, with its cached capabilities and the secrets for it.
pub(crate) struct Session {
    pub(crate) driver: Driver,
    pub(crate) secrets: Secrets,
    pub(crate) force: bool,
}

impl Session {
    /// Makes a call.
    pub(crate) async fn call<Q: Debug, A: Debug>(
        &self,
        rpc: &'static str,
        message: Q,
        send: impl AsyncFnOnce(Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, Failure> {
        // Debug of the messages leaves secret fields out.
        debug!(rpc, request = ?message, "call");
        let send = |request| async move { send(request).await };
        let answer = self.driver.call_here(rpc, send, message).await;
        let answer = answer.map_err(|status| self.failure(rpc, &status))?;
        // An answer has no field for secrets, but the driver may have put one into any field.
        debug!(rpc, answer = self.secrets.strip(&format!("{answer:?}")), "answer");
        Ok(answer)
    }

    /// Fails if the driver does not advertise the capability, unless --force is set.
    pub(crate) async fn require(&self, rpc: &'static str, needs: &[Need]) -> Result<(), Failure> {
        if self.force {
            return Ok(());
        }
        for need in needs {
            if !self.offers(*need).await? {
                return Err(Failure::Missing { rpc, need: *need });
            }
        }
        Ok(())
    }

    /// Whether the driver advertises a capability.
    pub(crate) async fn offers(&self, need: Need) -> Result<bool, Failure> {
        Ok(match need {
            Need::Plugin(service) => self.capabilities().await?.services.contains(&service),
            Need::Controller(rpc) => self.capabilities().await?.controller.contains(&rpc),
            Need::Node(rpc) => self.node_capabilities().await?.contains(&rpc),
            Need::Group(rpc) => {
                let service = Service::GroupControllerService;
                self.capabilities().await?.services.contains(&service)
                    && self.group_capabilities().await?.contains(&(rpc as i32))
            }
        })
    }

    /// Capabilities of the group controller service, as numbers.
    pub(crate) async fn group_capabilities(&self) -> Result<Vec<i32>, Failure> {
        let answer = self
            .call(
                "GroupControllerGetCapabilities",
                GroupControllerGetCapabilitiesRequest {},
                async |request| {
                    self.driver.group_controller().group_controller_get_capabilities(request).await
                },
            )
            .await?;
        let types = answer.capabilities.into_iter().filter_map(|capability| capability.r#type);
        Ok(types.map(|group_controller_service_capability::Type::Rpc(rpc)| rpc.r#type).collect())
    }

    async fn capabilities(&self) -> Result<wharf_csi::Capabilities, Failure> {
        let asked = self.driver.capabilities().await;
        asked.map_err(|status| self.failure("asking for capabilities", &status))
    }

    async fn node_capabilities(&self) -> Result<wharf_csi::NodeCapabilities, Failure> {
        let asked = self.driver.node_capabilities().await;
        asked.map_err(|status| self.failure("NodeGetCapabilities", &status))
    }

    /// A driver that never accepted the call is unreachable; other errors are the driver's answers.
    fn failure(&self, rpc: &'static str, status: &Status) -> Failure {
        let source = std::error::Error::source(status);
        let dial = source.and_then(|source| source.downcast_ref::<DialError>()).is_some();
        let silent = status.code() == Code::DeadlineExceeded && !self.driver.is_connected();
        if dial {
            return Failure::Unreachable(status.message().to_owned());
        }
        if silent {
            let socket = self.driver.socket().display();
            return Failure::Unreachable(format!(
                "{socket} does not accept calls: {}",
                status.message()
            ));
        }
        Failure::refused(rpc, status)
    }
}
