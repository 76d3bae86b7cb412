//! What is known of the pod or container that a call is about.

use std::fmt::Debug;
use std::sync::Arc;

use tonic::Status;

use super::visit::{End, Visit};
use super::{Interceptor, Method};
use crate::rebuild::{self, Found};
use crate::record::{Container, Pod};

/// A container and its pod, as they are known.
pub(super) struct Known {
    pub(super) id: String,
    pub(super) container: Arc<Container>,
    pub(super) pod: Arc<Pod>,
}

impl Interceptor {
    /// The pod of this id, of which callers may give the beginning only. One that we do not know the
    /// runtime may.
    pub(super) async fn pod(
        &self,
        visit: &mut Visit,
        method: Method,
        id: &str,
    ) -> Result<Option<Found<Pod>>, End> {
        let found = visit.while_wanted(rebuild::pod(&self.recovery, &self.records, id)).await?;
        self.settle(method, id, found)
    }

    /// The container of this id and its pod, likewise.
    pub(super) async fn container(
        &self,
        visit: &mut Visit,
        method: Method,
        id: &str,
    ) -> Result<Option<Known>, End> {
        let found =
            visit.while_wanted(rebuild::container(&self.recovery, &self.records, id)).await?;
        let Some(Found { id, record: container }) = self.settle(method, id, found)? else {
            return Ok(None);
        };
        let pod = self.pod(visit, method, container.pod()).await?;
        Ok(pod.map(|pod| Known { id, container, pod: pod.record }))
    }

    /// A runtime that cannot tell is no reason to refuse a call, unless hooks that must be asked
    /// before it would be left out. What is to be stopped is stopped.
    fn settle<T: Debug>(
        &self,
        method: Method,
        id: &str,
        found: Result<Option<T>, Status>,
    ) -> Result<Option<T>, End> {
        let hooks = || method.points().iter().filter(|point| self.chain.wants(**point));
        match found {
            Ok(found) => {
                if found.is_none() && hooks().next().is_some() {
                    tracing::debug!(id, ?method, "no hook: neither we nor the runtime know it");
                }
                Ok(found)
            }
            Err(status) if hooks().any(|point| point.is_before() && self.chain.insists(*point)) => {
                Err(status.into())
            }
            Err(status) => {
                tracing::warn!(
                    id,
                    ?method,
                    code = ?status.code(),
                    error = status.message(),
                    "no hook: the runtime does not tell of it"
                );
                Ok(None)
            }
        }
    }
}
