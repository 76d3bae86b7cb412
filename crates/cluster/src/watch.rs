//! One watch per kind, for the whole process.
//!
//! The first list is streamed object by object, so that no list is ever in memory as a whole. A
//! server that cannot stream is asked for pages, as is one with an object that cannot be read. From
//! then on the watch resumes at the last version that it has reached. It lists again only when the
//! server no longer has that version, or does not have it yet.

mod pause;
mod request;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use kube::{Client, core::WatchEvent};
use serde::de::IgnoredAny;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use self::{
    pause::{LONGEST, OUTAGE, Pause, spread},
    request::{Scope, follow, initial_stream},
};
use crate::{ApiFailure, Kind, Pages, Store, bounded, store::Listing};

/// The server ends a watch after one to two times this long, so that watches spread over its
/// replicas.
const LENGTH: Duration = Duration::from_mins(5);
/// A server that has not ended a watch this long after its time is taken for dead.
const GRACE: Duration = Duration::from_secs(30);
/// A connection that lasted this long ends a series of failures.
const STABLE: Duration = Duration::from_secs(10);
/// Annotation on the bookmark that ends the first list.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Keeps a [`Store`] in step with the API.
pub struct Watch<K: Kind> {
    client: Client,
    store: Arc<Store<K>>,
    scope: Scope,
    /// Whether a server without this kind counts as one without such objects.
    optional: bool,
    /// Whether the server streams lists, as far as known.
    streams: bool,
    /// The number of the list in progress.
    list: u64,
    /// The version that the store has reached; `None` before the list is complete.
    position: Option<String>,
    /// Whether the server has failed since: a different server may answer next.
    failed: bool,
}

/// Why a watch ended early.
#[derive(Debug, thiserror::Error)]
enum Interruption {
    #[error("the server no longer has the version to resume from")]
    Expired,
    #[error("the server does not stream lists")]
    NoStreams,
    #[error("the server is at version {version}, before the one to resume from")]
    WentBack { version: String },
    #[error("the server did not end the watch in time")]
    Overdue,
    #[error(transparent)]
    Api(#[from] ApiFailure),
}

impl<K: Kind> Watch<K> {
    /// A watch that fills `store`.
    pub fn new(client: Client, store: Arc<Store<K>>) -> Self {
        store.note_alive();
        let list = store.asked();
        let scope = Scope::default();
        Self {
            client,
            store,
            scope,
            optional: false,
            streams: true,
            list,
            position: None,
            failed: false,
        }
    }

    /// Watches another version of the kind's group, as [`served_at`](crate::served_at) finds it.
    #[must_use]
    pub fn at(mut self, group: impl Into<String>) -> Self {
        self.scope.group = Some(group.into());
        self
    }

    /// Watches a kind that the server may lack: while it does, there are no objects.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Watches the objects of one namespace only.
    #[must_use]
    pub fn within(mut self, namespace: impl Into<String>) -> Self {
        self.scope.namespace = Some(namespace.into());
        self
    }

    /// Watches objects with this label only.
    #[must_use]
    pub fn labelled(mut self, label: impl Into<String>, value: impl Into<String>) -> Self {
        self.scope.labels.push((label.into(), value.into()));
        self
    }

    /// Watches until `stop`. Failures are retried without end.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            let store = Arc::clone(&self.store);
            let mut pause = Pause::default();
            loop {
                let list = self.list;
                tokio::select! {
                    () = self.attempt(&mut pause) => {}
                    // A requested list begins at once, even after failures.
                    () = store.asked_beyond(list) => {
                        (self.list, self.position) = (store.asked(), None);
                        pause.reset();
                    }
                }
            }
        })
        .await;
    }

    /// Watches until a failure, then pauses.
    async fn attempt(&mut self, pause: &mut Pause) {
        let began = Instant::now();
        let ended = self.advance().await;
        if began.elapsed() >= STABLE {
            pause.reset();
        }
        let mut longest = LONGEST;
        match ended {
            Ok(()) => {}
            Err(Interruption::NoStreams) => {
                tracing::debug!(kind = K::KIND, "server does not stream lists, listing by pages");
                self.streams = false;
                return;
            }
            Err(Interruption::Expired) => {
                tracing::debug!(kind = K::KIND, "listing again: server no longer has the version");
                self.position = None;
            }
            Err(error @ Interruption::WentBack { .. }) => {
                tracing::warn!(kind = K::KIND, %error, "listing again: has etcd been restored from a backup?");
                self.position = None;
            }
            Err(Interruption::Api(ApiFailure::NotFound { .. })) if self.optional => {
                tracing::debug!(kind = K::KIND, "server does not have this kind");
                self.store.settle(self.list, Listing::new(), None);
                self.position = None;
            }
            Err(error) => {
                tracing::warn!(kind = K::KIND, %error, "failed to watch, retrying");
                self.store.note_failure();
                self.failed = true;
                if matches!(error, Interruption::Api(ApiFailure::Unreachable { .. })) {
                    longest = OUTAGE;
                }
            }
        }
        pause.wait(longest).await;
    }

    /// Watches from the store's version, after a list if there is none.
    async fn advance(&mut self) -> Result<(), Interruption> {
        if self.position.is_none() && !self.streams {
            self.list().await?;
        }
        if std::mem::take(&mut self.failed) {
            self.check_version().await?;
        }
        let length = spread(LENGTH);
        let request = match &self.position {
            Some(version) => follow::<K>(&self.scope, version, length),
            None => initial_stream::<K>(&self.scope, length),
        };
        let listing = self.position.is_none();
        let opened = bounded(K::KIND, self.client.request_events::<K>(request)).await;
        let events = opened.map_err(|failure| match failure {
            ApiFailure::Invalid { .. } if listing => Interruption::NoStreams,
            failure => expired_or(failure),
        })?;
        self.store.note_alive();
        let mut events = std::pin::pin!(events);
        let mut listing = listing.then(Listing::new);
        let deadline = Instant::now() + length + GRACE;
        loop {
            let event = match timeout_at(deadline, events.next()).await {
                Err(_) => return Err(Interruption::Overdue),
                Ok(None) => return Ok(()),
                Ok(Some(Ok(event))) => event,
                // A stream does not say which object cannot be read, and a stored one is not gone:
                // pages tell.
                Ok(Some(Err(error))) if is_unreadable(&error) && listing.is_some() => {
                    return self.list().await;
                }
                Ok(Some(Err(error))) if is_unreadable(&error) => {
                    // One unreadable object must not hide all others.
                    tracing::error!(kind = K::KIND, %error, "skipping unreadable object");
                    continue;
                }
                Ok(Some(Err(error))) => return Err(expired_or(ApiFailure::of(K::KIND, &error))),
            };
            self.store.note_alive();
            self.take(event, &mut listing)?;
        }
    }

    fn take(
        &mut self,
        event: WatchEvent<K>,
        listing: &mut Option<Listing<K>>,
    ) -> Result<(), Interruption> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.come_to(object.meta().resource_version.clone(), listing.is_some());
                match listing {
                    Some(listing) => listing.add(object, &self.store),
                    None => drop(self.store.show(object)),
                }
            }
            WatchEvent::Deleted(object) => {
                self.come_to(object.meta().resource_version.clone(), listing.is_some());
                if let Some(listing) = listing {
                    listing.remove(&object);
                }
                self.store.delete(&object);
            }
            WatchEvent::Bookmark(bookmark) => {
                let version = bookmark.metadata.resource_version;
                let number = version.parse().ok();
                let ended = bookmark.metadata.annotations.contains_key(INITIAL_END);
                match listing.take_if(|_| ended) {
                    Some(complete) => self.store.settle(self.list, complete, number),
                    None => self.store.reach(number),
                }
                self.come_to(version, listing.is_some());
            }
            WatchEvent::Error(status) => {
                return Err(expired_or(ApiFailure::of(K::KIND, &kube::Error::Api(status))));
            }
        }
        Ok(())
    }

    /// While the first list comes in there is no version to resume from.
    fn come_to(&mut self, version: String, listing: bool) {
        if !listing {
            self.position = Some(version);
        }
    }

    /// A server whose versions went back would let a watch of a later version wait in silence until
    /// it gets there.
    async fn check_version(&self) -> Result<(), Interruption> {
        let Some(own) = self.position.as_ref().and_then(|version| version.parse::<u64>().ok())
        else {
            return Ok(());
        };
        let collection = self.scope.collection::<K>();
        let mut page = Pages::<IgnoredAny>::new(&self.client, K::KIND, &collection).of(1);
        page.next().await?;
        match page.version().parse::<u64>() {
            Ok(version) if version < own => {
                Err(Interruption::WentBack { version: page.version().to_owned() })
            }
            _ => Ok(()),
        }
    }

    async fn list(&mut self) -> Result<(), Interruption> {
        let mut listing = Listing::new();
        let mut pages = Pages::<K>::new(&self.client, K::KIND, &self.scope.collection::<K>());
        if let Some(labels) = self.scope.selector() {
            pages = pages.selected("labelSelector", &labels);
        }
        while let Some(page) = pages.next().await.map_err(expired_or)? {
            for object in page {
                listing.add(object, &self.store);
            }
            pages.unreadable().for_each(|key| listing.add_unreadable(key));
        }
        self.store.settle(self.list, listing, pages.version().parse().ok());
        self.position = Some(pages.version().to_owned());
        Ok(())
    }
}

/// Whether a watch event has an object that does not have the form of its kind. The client takes it
/// for an empty `Status`, since all fields of a status are optional.
fn is_unreadable(error: &kube::Error) -> bool {
    match error {
        kube::Error::SerdeError(_) => true,
        kube::Error::Api(status) => status.code == 0,
        _ => false,
    }
}

fn expired_or(failure: ApiFailure) -> Interruption {
    match failure {
        ApiFailure::Expired { .. } => Interruption::Expired,
        failure => Interruption::Api(failure),
    }
}
