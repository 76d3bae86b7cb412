//! A Lease API in memory, which can be unreachable.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::sync::watch;

use super::{Lease, LeaseApi, LeaseVersions};
use crate::ApiFailure;

/// Clones share the Lease; each can be cut off on its own, as replicas on different nodes can.
#[derive(Clone)]
pub(crate) struct FakeLease {
    stored: Arc<watch::Sender<Option<Lease>>>,
    version: Arc<AtomicU64>,
    reach: Arc<Reach>,
}

/// One replica's access to the API, and its requests so far.
#[derive(Default)]
struct Reach {
    outage: AtomicBool,
    silence: AtomicBool,
    lost_answers: AtomicBool,
    no_watch: AtomicBool,
    calls: Mutex<Vec<&'static str>>,
}

impl FakeLease {
    pub(crate) fn new() -> Self {
        let stored = Arc::new(watch::Sender::new(None));
        Self { stored, version: Arc::default(), reach: Arc::default() }
    }

    /// The same Lease as another replica reaches it.
    pub(crate) fn elsewhere(&self) -> Self {
        Self { reach: Arc::default(), ..self.clone() }
    }

    /// Whether requests fail.
    pub(crate) fn outage(&self, outage: bool) {
        self.reach.outage.store(outage, Ordering::SeqCst);
    }

    /// Whether requests are unanswered.
    pub(crate) fn silence(&self, silence: bool) {
        self.reach.silence.store(silence, Ordering::SeqCst);
    }

    /// Whether writes happen but are unanswered.
    pub(crate) fn lose_answers(&self, lose: bool) {
        self.reach.lost_answers.store(lose, Ordering::SeqCst);
    }

    /// Refuses watches from now on.
    pub(crate) fn without_watch(self) -> Self {
        self.reach.no_watch.store(true, Ordering::SeqCst);
        self
    }

    /// The requests so far; the list is emptied.
    pub(crate) fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.reach.calls.lock().unwrap())
    }

    /// The stored Lease.
    pub(crate) fn lease(&self) -> Lease {
        self.stored.borrow().clone().expect("there is a Lease")
    }

    /// Writes the Lease as another replica would, whatever its version.
    pub(crate) fn put(&self, mut lease: Lease) -> Lease {
        let version = self.version.fetch_add(1, Ordering::SeqCst) + 1;
        lease.0["metadata"]["resourceVersion"] = json!(version.to_string());
        self.stored.send_replace(Some(lease.clone()));
        lease
    }

    /// Deletes the Lease.
    pub(crate) fn delete(&self) {
        self.stored.send_replace(None);
    }

    async fn reach(&self, call: &'static str) -> Result<(), ApiFailure> {
        self.reach.calls.lock().unwrap().push(call);
        if self.reach.silence.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.reach.outage.load(Ordering::SeqCst) {
            return Err(ApiFailure::Unreachable { what: "Lease".into(), message: "outage".into() });
        }
        Ok(())
    }
}

impl LeaseApi for FakeLease {
    async fn read(&self) -> Result<Option<Lease>, ApiFailure> {
        self.reach("read").await?;
        Ok(self.stored.borrow().clone())
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, ApiFailure> {
        self.reach("create").await?;
        if self.stored.borrow().is_some() {
            return Err(ApiFailure::Conflict { what: "Lease".into() });
        }
        Ok(self.put(lease.clone()))
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, ApiFailure> {
        self.reach("replace").await?;
        let stored = self.stored.borrow().clone();
        match stored {
            None => Err(ApiFailure::NotFound { what: "Lease".into() }),
            Some(stored) if stored.version() != lease.version() => {
                Err(ApiFailure::Conflict { what: "Lease".into() })
            }
            Some(_) => {
                let written = self.put(lease.clone());
                if self.reach.lost_answers.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                Ok(written)
            }
        }
    }

    fn versions(&self, since: &str) -> LeaseVersions {
        let (fake, mut stored, since) = (self.clone(), self.stored.subscribe(), since.to_owned());
        if self.reach.no_watch.load(Ordering::SeqCst) {
            self.reach.calls.lock().unwrap().push("versions");
            let message = "watch is not granted".to_owned();
            let refusal = ApiFailure::Forbidden { what: "Lease".into(), message };
            return stream::iter([Err(refusal)]).boxed();
        }
        // A change since then has to be delivered; the subscription alone would miss it.
        if stored.borrow().as_ref().is_none_or(|lease| lease.version() != since) {
            stored.mark_changed();
        }
        stream::unfold((fake, stored, true), |(fake, mut stored, first)| async move {
            if first && let Err(error) = fake.reach("versions").await {
                return Some((Err(error), (fake, stored, false)));
            }
            stored.changed().await.ok()?;
            let lease = stored.borrow_and_update().clone();
            Some((Ok(lease), (fake, stored, false)))
        })
        .boxed()
    }
}
