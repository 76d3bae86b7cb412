//! What is known of the pod or container that a call is about.

use std::{future::Future, sync::Arc};

use tokio::time::timeout;
use tonic::Status;
use wharf_uds::code_name;

use super::{
    Interceptor, Method,
    intercepted_call::{End, InterceptedCall},
};
use crate::{
    rebuild::{self, Found},
    record::{Container, Pod},
};

/// A container and its pod, as they are known.
pub(super) struct Known {
    pub(super) id: String,
    pub(super) container: Arc<Container>,
    pub(super) pod: Arc<Pod>,
}

impl Interceptor {
    /// The pod of this id, of which callers may give the beginning only. One that we do not know
    /// the runtime may, and is asked if a server wants to hear of the call.
    pub(super) async fn pod(
        &self,
        call: &mut InterceptedCall,
        method: Method,
        id: &str,
    ) -> Result<Option<Found<Pod>>, End> {
        if let Some(record) = self.records.pod(id) {
            return Ok(Some(Found { id: id.to_owned(), record }));
        }
        self.look(call, method, id, rebuild::pod(&self.recovery, &self.records, id)).await
    }

    /// The container of this id and its pod, likewise.
    pub(super) async fn container(
        &self,
        call: &mut InterceptedCall,
        method: Method,
        id: &str,
    ) -> Result<Option<Known>, End> {
        if let Some(container) = self.records.container(id)
            && let Some(pod) = self.records.pod(container.pod())
        {
            return Ok(Some(Known { id: id.to_owned(), container, pod }));
        }
        let lookup = async {
            let found = rebuild::container(&self.recovery, &self.records, id).await?;
            let Some(Found { id, record: container }) = found else { return Ok(None) };
            let pod = rebuild::pod(&self.recovery, &self.records, container.pod()).await?;
            Ok(pod.map(|pod| Known { id, container, pod: pod.record }))
        };
        self.look(call, method, id, lookup).await
    }

    /// Waits for what the runtime tells, for as long as hook servers might take. A call that nobody
    /// wants to hear of does not wait.
    async fn look<T>(
        &self,
        call: &mut InterceptedCall,
        method: Method,
        id: &str,
        lookup: impl Future<Output = Result<Option<T>, Status>>,
    ) -> Result<Option<T>, End> {
        if !method.reasons().iter().any(|point| self.chain.wants(*point)) {
            return Ok(None);
        }
        let limit = self.chain.patience(call.ends(), call.time());
        let _measured = call.time().measure();
        call.charge_if_abandoned();
        let found = call.while_wanted(timeout(limit, lookup)).await?;
        let late = |_| {
            let text = format!("the runtime did not report {id:?} within {limit:?}");
            Err(Status::deadline_exceeded(text))
        };
        self.settle(call, method, id, found.unwrap_or_else(late))
    }

    /// A runtime that cannot tell is no reason to refuse a call, unless hooks that must be asked
    /// before it would be left out. What is to be stopped is stopped.
    fn settle<T>(
        &self,
        call: &InterceptedCall,
        method: Method,
        id: &str,
        found: Result<Option<T>, Status>,
    ) -> Result<Option<T>, End> {
        let hooks = || method.points().iter().filter(|point| self.chain.wants(**point));
        let keep = |note: String| {
            if let Some(point) = hooks().next() {
                self.keep_unknown(*point, method, id, call.records(), note);
            }
        };
        match found {
            Ok(None) => {
                keep("no hooks: neither the proxy nor the runtime knows it".to_owned());
                for point in hooks().filter(|point| point.is_before()) {
                    self.chain.refuse_without(*point, "")?;
                }
                if hooks().next().is_some() {
                    tracing::debug!(id, ?method, "no hook: neither we nor the runtime know it");
                }
                Ok(None)
            }
            Ok(found) => Ok(found),
            Err(status) if hooks().any(|point| point.is_before() && self.chain.insists(*point)) => {
                let code = code_name(status.code());
                keep(format!(
                    "refused: hooks must be asked, and the runtime does not report the object: {code}"
                ));
                Err(status.into())
            }
            Err(status) => {
                let code = code_name(status.code());
                keep(format!("no hooks: the runtime does not report the object: {code}"));
                tracing::warn!(
                    id,
                    ?method,
                    code = ?status.code(),
                    error = status.message(),
                    "no hook: the runtime does not report the object"
                );
                Ok(None)
            }
        }
    }
}
