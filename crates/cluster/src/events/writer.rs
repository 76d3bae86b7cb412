use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{EventRecorder, EventType, reference};
use crate::Kind;

/// How many events may wait to be written; more are dropped, as nothing must wait for them.
const WAITING: usize = 1000;

/// Takes events without waiting for the API. Clones share one [`EventWriter`].
#[derive(Clone, Debug)]
pub struct Events(mpsc::Sender<Told>);

/// Writes what [`Events`] were told, in their order.
pub struct EventWriter {
    recorder: EventRecorder,
    told: mpsc::Receiver<Told>,
}

#[derive(Debug)]
struct Told {
    about: ObjectReference,
    kind: EventType,
    reason: &'static str,
    message: String,
}

impl Events {
    /// Events that `recorder` is to write.
    pub fn new(recorder: EventRecorder) -> (Self, EventWriter) {
        let (sender, told) = mpsc::channel(WAITING);
        (Self(sender), EventWriter { recorder, told })
    }

    /// Tells of an object.
    pub fn tell<K: Kind>(
        &self,
        about: &K,
        kind: EventType,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let told = Told { about: reference(about), kind, reason, message: message.into() };
        if self.0.try_send(told).is_err() {
            tracing::warn!(about = about.title(), reason, "event dropped: too many wait");
        }
    }
}

impl EventWriter {
    /// Writes until it is told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        stop.run_until_cancelled(async {
            while let Some(Told { about, kind, reason, message }) = self.told.recv().await {
                if let Err(error) = self.recorder.record(about, kind, reason, &message).await {
                    tracing::warn!(reason, %error, "event not written");
                }
            }
        })
        .await;
    }
}
