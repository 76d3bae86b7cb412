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

/// How many events are written at a time. Those about one object follow each other.
const LANES: usize = 32;
/// How many events may wait in a lane; more are dropped, as nothing must wait for them.
const WAITING: usize = 512;
/// How many events are remembered in all, to count them when they are told again.
const REMEMBERED: usize = 4096;
/// How often an event is tried to be written, and the first pause between.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);

/// Takes events without waiting for the API. Clones share one [`EventWriter`].
#[derive(Clone)]
pub struct Events(Arc<[mpsc::Sender<Told>]>);

/// Writes what [`Events`] were told: in their order for each object, with repetitions counted and floods held back.
pub struct EventWriter {
    recorder: EventRecorder,
    lanes: Vec<Lane>,
}

/// The events about some objects.
struct Lane {
    correlator: Correlator,
    told: mpsc::Receiver<Told>,
}

/// An event that is to be written.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) about: ObjectReference,
    pub(super) kind: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Events {
    /// Events that `recorder` is to write.
    pub fn new(recorder: EventRecorder) -> (Self, EventWriter) {
        let (senders, lanes) = (0..LANES)
            .map(|_| {
                let (sender, told) = mpsc::channel(WAITING);
                let correlator = Correlator::new(REMEMBERED / LANES);
                (sender, Lane { correlator, told })
            })
            .collect::<(Vec<_>, Vec<_>)>();
        (Self(senders.into()), EventWriter { recorder, lanes })
    }

    /// Tells of an object.
    pub fn tell<K: Kind>(
        &self,
        about: &K,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let meta = about.meta();
        let hash = BuildHasherDefault::<DefaultHasher>::default();
        let lane = hash.hash_one((K::KIND, &meta.namespace, &meta.name)) as usize % LANES;
        let told = Told { about: object_reference(about), kind, reason, message: message.into() };
        if self.0[lane].try_send(told).is_err() {
            tracing::warn!(about = about.title(), reason, "event dropped: too many wait");
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Events").finish_non_exhaustive()
    }
}

impl EventWriter {
    /// Writes until it is told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let Self { recorder, lanes } = self;
        let writing = lanes.into_iter().map(|lane| lane.run(&recorder));
        stop.run_until_cancelled(join_all(writing)).await;
    }
}

impl Lane {
    async fn run(mut self, recorder: &EventRecorder) {
        while let Some(told) = self.told.recv().await {
            let Some(correlated) = self.correlator.correlate(&told, Instant::now()) else {
                tracing::debug!(
                    about = title(&told.about),
                    reason = told.reason,
                    "event left out: too many about its object"
                );
                continue;
            };
            match write(recorder, &told, &correlated).await {
                Ok(name) => self.correlator.written(correlated, name),
                Err(error) => {
                    tracing::warn!(about = title(&told.about), reason = told.reason, %error, "event not written");
                }
            }
        }
    }
}

/// Gives the name of the object that the event is in now.
async fn write(
    recorder: &EventRecorder,
    told: &Told,
    correlated: &Correlated,
) -> Result<String, ApiFailure> {
    let mut pause = PAUSE;
    for _ in 1..ATTEMPTS {
        match try_write(recorder, told, correlated).await {
            Err(failure) if failure.is_outage() => sleep(pause).await,
            answer => return answer,
        }
        pause *= 2;
    }
    try_write(recorder, told, correlated).await
}

async fn try_write(
    recorder: &EventRecorder,
    told: &Told,
    correlated: &Correlated,
) -> Result<String, ApiFailure> {
    if let Some(name) = &correlated.entry.name {
        match recorder.recount(&told.about, name, correlated).await {
            // Events go after an hour.
            Err(ApiFailure::NotFound { .. }) => {}
            answer => return answer.map(|()| name.clone()),
        }
    }
    recorder.create(told, correlated).await
}
