//! The gRPC services, implemented with the parts of a plugin.
//!
//! Each RPC checks that the plugin offers it, that the request is valid, and that the request uses
//! only declared features. A call that changes something then runs the driver under its locks, in
//! its own task.

mod compare;
mod controller;
mod group;
mod health;
mod identity;
mod node;
mod snapshot;
mod volume;

use std::{fmt::Debug, future::Future, time::Instant};

use prost::Message;
use tonic::{Code, Response, Status};
use wharf_uds::code_name;

pub(crate) use controller::ControllerService;
pub(crate) use group::GroupControllerService;
pub(crate) use identity::IdentityService;
pub(crate) use node::NodeService;

use crate::{
    error::Failure,
    locked::Locked,
    metrics::DriverMetrics,
    operations::{Identity, Operations},
    parts::Parts,
    readiness::Readiness,
    types::{Capability, Parameters},
};

/// State shared by all sockets of a plugin.
pub(crate) struct Core {
    pub(crate) name: String,
    pub(crate) vendor_version: String,
    pub(crate) manifest: Parameters,
    pub(crate) parts: Parts,
    pub(crate) operations: Operations,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Option<DriverMetrics>,
}

impl Core {
    /// Logs and counts a call. Its content is logged by [`accept`].
    async fn answer<R>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<R, Status>>,
    ) -> Result<Response<R>, Status> {
        let started = Instant::now();
        let result = work.await;
        let duration = started.elapsed();
        let code = result.as_ref().err().map_or(Code::Ok, Status::code);
        if let Err(status) = &result {
            let error = status.message();
            tracing::info!(method, code = code_name(code), ?duration, error, "call failed");
        }
        if let Some(metrics) = &self.metrics {
            metrics.observe(method, code, duration);
        }
        result.map(Response::new)
    }

    /// Runs an operation under the locks of its request.
    async fn operate<Q, R, W>(
        &self,
        accepted: Accepted<Q>,
        work: impl FnOnce(Q) -> W,
    ) -> Result<R, Status>
    where
        Q: Locked,
        R: Clone + Send + Sync + 'static,
        W: Future<Output = Result<R, Status>> + Send + 'static,
    {
        let Accepted { identity, request } = accepted;
        let claims = request.claims();
        self.operations.run(identity, claims, work(request)).await
    }

    /// Refuses access modes that count workloads, unless the driver supports them.
    fn check_mode(&self, field: &str, capability: &Capability) -> Result<(), Status> {
        if capability.mode.counts_workloads() && !self.parts.single_node_multi_writer {
            let expected = "a mode other than SINGLE_NODE_SINGLE_WRITER and \
                            SINGLE_NODE_MULTI_WRITER, which this driver does not offer";
            return Err(Failure::invalid(format!("{field}.access_mode.mode"), expected).into());
        }
        Ok(())
    }
}

/// A valid request, with the identity that a repeated request shares.
struct Accepted<Q> {
    identity: Identity,
    request: Q,
}

/// Checks a request. Logs valid requests only, in their typed form, which hides secrets.
fn accept<W: Message, Q: TryFrom<W, Error = Status> + Debug>(
    rpc: &'static str,
    wire: W,
) -> Result<Accepted<Q>, Status> {
    let identity = Identity::of(rpc, &wire);
    let request = Q::try_from(wire)?;
    tracing::debug!(method = rpc, ?request, "called");
    Ok(Accepted { identity, request })
}

/// Checks an ID that the driver returned.
fn check_id(what: &str, id: &str, max: usize) -> Result<(), Status> {
    if (1..=max).contains(&id.len()) {
        return Ok(());
    }
    let length = id.len();
    Err(Status::internal(format!(
        "the driver returned a {what} of {length} bytes, expected 1 to {max}"
    )))
}

/// Implements the methods of a generated service trait with the methods of [`Core`] of the same
/// name.
macro_rules! rpcs {
    ($service:literal: $($method:ident: $request:ident -> $response:ident,)*) => {$(
        // The expansion of async_trait, written out: the attribute does not process macros.
        fn $method<'a, 'f>(
            &'a self,
            request: tonic::Request<wharf_proto::csi::$request>,
        ) -> std::pin::Pin<Box<
            dyn std::future::Future<
                Output = Result<tonic::Response<wharf_proto::csi::$response>, tonic::Status>,
            > + Send + 'f,
        >>
        where
            'a: 'f,
            Self: 'f,
        {
            let method = concat!("/csi.v1.", $service, "/", stringify!($request));
            let method = method.trim_end_matches("Request");
            Box::pin(self.0.answer(method, self.0.$method(request.into_inner())))
        }
    )*};
}
use rpcs;
