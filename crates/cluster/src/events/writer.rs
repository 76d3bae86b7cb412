use std::{
    fmt,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    EventRecorder, EventType,
    correlator::{Correlated, Correlator},
    object_reference, title,
};
use crate::{ApiFailure, Kind};

/// Events that are written concurrently. Events about one object are written in order.
const QUEUES: usize = 32;
/// The length of a queue. Further events are dropped: callers must never wait for events.
const WAITING: usize = 512;
/// Events that are kept in all, to count their repetitions.
const REMEMBERED: usize = 4096;
/// Attempts for an event, and the first pause between them.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

/// Queues events without waiting for the API. Clones share one [`EventWriter`].
#[derive(Clone)]
pub struct Events(Arc<[mpsc::Sender<QueuedEvent>]>);

/// Writes queued events: in order for each object, with repetitions counted and floods limited.
pub struct EventWriter {
    recorder: EventRecorder,
    queues: Vec<EventQueue>,
}

/// A queue for the events about a share of the objects.
struct EventQueue {
    correlator: Correlator,
    events: mpsc::Receiver<QueuedEvent>,
}

/// A queued event.
#[derive(Debug)]
pub(super) struct QueuedEvent {
    pub(super) about: ObjectReference,
    pub(super) kind: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Events {
    /// Pairs a queue of events with the writer that passes them to `recorder`.
    pub fn new(recorder: EventRecorder) -> (Self, EventWriter) {
        let (senders, queues) = (0..QUEUES)
            .map(|_| {
                let (sender, events) = mpsc::channel(WAITING);
                let correlator = Correlator::new(REMEMBERED / QUEUES);
                (sender, EventQueue { correlator, events })
            })
            .collect::<(Vec<_>, Vec<_>)>();
        (Self(senders.into()), EventWriter { recorder, queues })
    }

    /// Queues an event about an object.
    pub fn record<K: Kind>(
        &self,
        about: &K,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let meta = about.meta();
        let hash = BuildHasherDefault::<DefaultHasher>::default();
        let queue = hash.hash_one((K::KIND, &meta.namespace, &meta.name)) as usize % QUEUES;
        let event =
            QueuedEvent { about: object_reference(about), kind, reason, message: message.into() };
        if self.0[queue].try_send(event).is_err() {
            tracing::warn!(about = about.title(), reason, "dropping event: queue is full");
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Events").finish_non_exhaustive()
    }
}

impl EventWriter {
    /// Writes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let Self { recorder, queues } = self;
        let writing = queues.into_iter().map(|queue| queue.run(&recorder));
        stop.run_until_cancelled(join_all(writing)).await;
    }
}

impl EventQueue {
    async fn run(mut self, recorder: &EventRecorder) {
        while let Some(event) = self.events.recv().await {
            let Some(correlated) = self.correlator.correlate(&event, Instant::now()) else {
                tracing::debug!(
                    about = title(&event.about),
                    reason = event.reason,
                    "skipping event: too many about its object"
                );
                continue;
            };
            match write(recorder, &event, &correlated).await {
                Ok(name) => self.correlator.written(correlated, name),
                Err(error) => {
                    tracing::warn!(about = title(&event.about), reason = event.reason, %error, "failed to write event");
                }
            }
        }
    }
}

/// Returns the name of the API object that has the event now.
async fn write(
    recorder: &EventRecorder,
    event: &QueuedEvent,
    correlated: &Correlated,
) -> Result<String, ApiFailure> {
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        match try_write(recorder, event, correlated).await {
            Err(failure) if failure.is_outage() => sleep(pause).await,
            answer => return answer,
        }
        pause *= 2;
    }
    try_write(recorder, event, correlated).await
}

async fn try_write(
    recorder: &EventRecorder,
    event: &QueuedEvent,
    correlated: &Correlated,
) -> Result<String, ApiFailure> {
    if let Some(name) = &correlated.entry.name {
        match recorder.recount(&event.about, name, correlated).await {
            // The API server deletes events after an hour.
            Err(ApiFailure::NotFound { .. }) => {}
            answer => return answer.map(|()| name.clone()),
        }
    }
    recorder.create(event, correlated).await
}
