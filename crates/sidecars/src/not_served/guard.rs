use std::{convert::Infallible, sync::Arc, time::Duration};

use kube::Client;
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;
use wharf_cluster::{
    Change, EventRecorder, EventType, Key, Kind, ObjectReference, PersistentVolume,
    PersistentVolumeClaim, StorageClass, Store, Subscription, VolumeGroupSnapshot,
    VolumeGroupSnapshotContent, object_reference, served_at,
};

use super::{Gap, NOT_SERVED, Unserved, claim_message, group_message, volume_message};
use crate::{Caches, Watched};

/// The component in the events.
const COMPONENT: &str = "wharf-sidecars";
/// The pause between two requests to an API that does not answer.
const PAUSE: Duration = Duration::from_secs(5);
/// Events that may be written at once; then one per [`PACE`]. They must not take the controllers'
/// share of the API.
const BURST: usize = 25;
const PACE: Duration = Duration::from_secs(1);

/// Reports objects that a controller does not serve: one event and one log line each, and a count.
///
/// The name of an event follows from the object: replicas, nodes and controllers that find the same
/// object write it once, and again only when a process starts after the API has dropped it, by
/// default after an hour.
pub struct Guard {
    shared: Arc<GuardState>,
    gaps: Vec<Gap>,
    client: Client,
    caches: Caches,
    found: mpsc::UnboundedReceiver<UnservedObject>,
}

/// GuardState by the subscriptions.
struct GuardState {
    controller: &'static str,
    /// Empty for a controller without a driver.
    driver: String,
    claims: Arc<Store<PersistentVolumeClaim>>,
    classes: Arc<Store<StorageClass>>,
    unserved: Unserved,
    /// One entry for each unserved object, so that it grows no further than the caches.
    found: mpsc::UnboundedSender<UnservedObject>,
}

/// An object that is not served, and the message about it.
struct UnservedObject {
    about: ObjectReference,
    message: String,
}

/// Unsubscribes when it is dropped.
#[derive(Default)]
struct Subscriptions {
    _volumes: Option<Subscription<PersistentVolume>>,
    _claims: Option<Subscription<PersistentVolumeClaim>>,
    _classes: Option<Subscription<StorageClass>>,
    _groups: Option<Subscription<VolumeGroupSnapshot>>,
    _contents: Option<Subscription<VolumeGroupSnapshotContent>>,
}

impl Guard {
    /// A guard for a controller that does not serve these `gaps`. Volumes, claims and
    /// StorageClasses are checked if the controller watches them; the guard watches group snapshots
    /// itself, if the API has them.
    pub fn new(
        controller: &'static str,
        driver: Option<&str>,
        gaps: Vec<Gap>,
        client: Client,
        caches: Caches,
        unserved: Unserved,
    ) -> Self {
        let (sender, found) = mpsc::unbounded_channel();
        let shared = GuardState {
            controller,
            driver: driver.unwrap_or_default().to_owned(),
            claims: Arc::clone(&caches.claims),
            classes: Arc::clone(&caches.storage_classes),
            unserved,
            found: sender,
        };
        Self { shared: Arc::new(shared), gaps, client, caches, found }
    }

    /// Reports until `stop`, and never returns: the caller drops it.
    pub async fn run(mut self, stop: CancellationToken) -> Infallible {
        if !self.gaps.is_empty() {
            stop.run_until_cancelled(self.work()).await;
        }
        std::future::pending().await
    }

    async fn work(&mut self) {
        let _counted = self.shared.count(&self.gaps);
        let _changes = self.subscribe().await;
        let recorder = EventRecorder::new(self.client.clone(), COMPONENT, "");
        let mut written = 0;
        while let Some(UnservedObject { about, message }) = self.found.recv().await {
            if written >= BURST {
                sleep(PACE).await;
            }
            write(&recorder, &about, &message).await;
            written += 1;
        }
    }

    async fn subscribe(&self) -> Subscriptions {
        let (shared, caches) = (&self.shared, &self.caches);
        let mut changes = Subscriptions::default();
        for gap in &self.gaps {
            match gap {
                Gap::InTreeVolumes => {
                    let shared = Arc::clone(shared);
                    changes._volumes = Some(
                        caches.volumes.subscribe(move |change| shared.volume_changed(&change)),
                    );
                }
                Gap::ImmediateClaims => {
                    let of_claims = Arc::clone(shared);
                    let of_classes = Arc::clone(shared);
                    changes._claims =
                        Some(caches.claims.subscribe(move |change| of_claims.check(change.key)));
                    changes._classes =
                        Some(caches.storage_classes.subscribe(move |_| of_classes.check_all()));
                }
                Gap::GroupSnapshots => {
                    if let Some(at) = found_at::<VolumeGroupSnapshot>(&self.client).await {
                        caches.want_group_snapshots(Watched::GroupSnapshots, &at);
                        changes._groups =
                            Some(caches.group_snapshots.subscribe(shared.groups(*gap, &at)));
                    }
                }
                Gap::GroupContents => {
                    if let Some(at) = found_at::<VolumeGroupSnapshotContent>(&self.client).await {
                        caches.want_group_snapshots(Watched::GroupContents, &at);
                        let (note, driver) = (shared.groups(*gap, &at), shared.driver.clone());
                        changes._contents = Some(caches.group_contents.subscribe(
                            move |change: Change<'_, VolumeGroupSnapshotContent>| {
                                // A process with a snapshot-controller has those of all drivers in
                                // its cache.
                                let shown = change.new.or(change.old);
                                if shown.is_some_and(|it| it.spec.driver == *driver) {
                                    note(change);
                                }
                            },
                        ));
                    }
                }
            }
        }
        changes
    }
}

impl GuardState {
    /// Counts the gaps from now on until the result is dropped.
    fn count(self: &Arc<Self>, gaps: &[Gap]) -> Counted {
        let mut all = self.unserved.lock();
        for gap in gaps {
            all.insert((self.controller, *gap), Default::default());
        }
        Counted(Arc::clone(self))
    }

    fn volume_changed(&self, change: &Change<'_, PersistentVolume>) {
        self.note(Gap::InTreeVolumes, change.key, None, || {
            let volume = change.new?;
            Some((Arc::clone(volume), volume_message(volume, &self.driver)?))
        });
    }

    /// Checks a claim and its class as they are now: either may have changed first.
    fn check(&self, key: &Key) {
        self.note(Gap::ImmediateClaims, key, None, || {
            let claim = self.claims.get(key)?;
            let class = self.classes.get(claim.class()?);
            let message = claim_message(&claim, class.as_deref(), &self.driver)?;
            Some((claim, message))
        });
    }

    fn check_all(&self) {
        for claim in self.claims.all() {
            self.check(&claim.metadata.key().into());
        }
    }

    /// Watches and checks group snapshots, which the API serves at this path.
    fn groups<K: Kind>(
        self: &Arc<Self>,
        gap: Gap,
        at: &str,
    ) -> impl Fn(Change<'_, K>) + Send + Sync + use<K> {
        let (shared, version) = (Arc::clone(self), at.trim_start_matches("/apis/").to_owned());
        move |change| {
            shared.note(gap, change.key, Some(&version), || {
                Some((Arc::clone(change.new?), group_message().to_owned()))
            });
        }
    }

    /// Records whether an object is served: `look` returns an unserved one with its message. It
    /// runs under the lock, so that of two concurrent changes the last check counts.
    fn note<K: Kind>(
        &self,
        gap: Gap,
        key: &Key,
        version: Option<&str>,
        look: impl FnOnce() -> Option<(Arc<K>, String)>,
    ) {
        let mut all = self.unserved.lock();
        let Some(objects) = all.get_mut(&(self.controller, gap)) else { return };
        let Some((object, message)) = look() else {
            objects.remove(key);
            return;
        };
        let uid = object.meta().uid.as_str();
        let before = objects.insert(Key::clone(key), uid.into());
        if before.as_deref() == Some(uid) {
            return;
        }
        drop(all);
        tracing::warn!(
            object = object.title(),
            reason = gap.reason(),
            error = message,
            "object is not served"
        );
        let mut about = object_reference(&*object);
        if let Some(version) = version {
            about.api_version = Some(version.to_owned());
        }
        // The receiver is gone when the guard has ended.
        let _ = self.found.send(UnservedObject { about, message });
    }
}

/// Gaps that are counted until this is dropped.
struct Counted(Arc<GuardState>);

impl Drop for Counted {
    fn drop(&mut self) {
        let GuardState { controller, unserved, .. } = &*self.0;
        unserved.lock().retain(|(of, _), _| of != controller);
    }
}

/// The path where the API serves a kind, once it answers; `None` if it does not have it.
async fn found_at<K: Kind>(client: &Client) -> Option<String> {
    loop {
        match served_at::<K>(client).await {
            Ok(found) => return found,
            Err(error) => {
                tracing::debug!(kind = K::KIND, %error, "retrying: API does not answer whether it has this kind");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn write(recorder: &EventRecorder, about: &ObjectReference, message: &str) {
    loop {
        let written = recorder.record_once(about.clone(), EventType::Warning, NOT_SERVED, message);
        match written.await {
            Ok(()) => return,
            Err(failure) if failure.is_outage() => sleep(PAUSE).await,
            Err(error) => {
                tracing::debug!(%error, reason = NOT_SERVED, "failed to write event");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
