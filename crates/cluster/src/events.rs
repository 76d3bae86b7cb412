mod correlator;
mod lru;
mod writer;

use http::{Method, Request};
pub use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::{
    api::core::v1::{Event, EventSource},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::json;

pub use self::writer::{EventWriter, Events};
use self::{
    correlator::{Correlated, Entry},
    writer::QueuedEvent,
};
use crate::{ApiFailure, Kind, Meta, bounded, patch::request, permissions::Optional};

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Normal operation.
    Normal,
    /// An operator has to look.
    Warning,
}

/// Writes core events, which upstream's roles grant, as one component.
#[derive(Clone)]
pub struct EventRecorder {
    client: Client,
    component: String,
    host: String,
}

impl EventRecorder {
    /// A recorder for a component on a host. An empty host is left out, as in the Go sidecars.
    pub fn new(client: Client, component: impl Into<String>, host: impl Into<String>) -> Self {
        Self { client, component: component.into(), host: host.into() }
    }

    /// Writes one event about an object. The caller prevents repetitions.
    pub async fn record(
        &self,
        about: ObjectReference,
        kind: EventType,
        reason: &str,
        message: &str,
    ) -> Result<(), ApiFailure> {
        let entry = Entry { name: None, count: 1, first: Timestamp::now() };
        self.post(self.event(about, kind, reason, message, &entry)).await.map(drop)
    }

    /// Writes one event about an object, under a name that follows from the object and the reason:
    /// any process that reports the same finds the event and writes none. If the account may not
    /// write events, the error is `Forbidden`, and the missing right is not noted.
    ///
    /// # Errors
    /// When the API refuses the event or does not answer.
    pub async fn record_once(
        &self,
        about: ObjectReference,
        kind: EventType,
        reason: &str,
        message: &str,
    ) -> Result<(), ApiFailure> {
        let entry = Entry { name: None, count: 1, first: Timestamp::now() };
        let name = lasting_name(&about, reason);
        let mut event = self.event(about, kind, reason, message, &entry);
        (event.metadata.name, event.metadata.generate_name) = (Some(name), None);
        let mut request = creation(&event);
        request.extensions_mut().insert(Optional);
        let what = what(&event.involved_object);
        match bounded(&what, self.client.request::<IgnoredAny>(request)).await {
            // The event exists already.
            Ok(_) | Err(ApiFailure::Conflict { .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Creates an event, and returns the event's name.
    async fn create(
        &self,
        queued: &QueuedEvent,
        Correlated { entry, message, .. }: &Correlated,
    ) -> Result<String, ApiFailure> {
        let event = self.event(queued.about.clone(), queued.kind, queued.reason, message, entry);
        self.post(event).await
    }

    /// Counts a repetition of an event.
    async fn recount(
        &self,
        about: &ObjectReference,
        name: &str,
        Correlated { entry, message, .. }: &Correlated,
    ) -> Result<(), ApiFailure> {
        let last = Time(Timestamp::now());
        let patch = json!({ "count": entry.count, "lastTimestamp": last, "message": message });
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace(about));
        let params = PatchParams::default();
        bounded(&what(about), events.patch(name, &params, &Patch::Merge(patch))).await.map(drop)
    }

    async fn post(&self, event: Event) -> Result<String, ApiFailure> {
        let request = creation(&event);
        let what = what(&event.involved_object);
        let made: Made = bounded(&what, self.client.request(request)).await?;
        Ok(made.metadata.name)
    }

    fn event(
        &self,
        about: ObjectReference,
        kind: EventType,
        reason: &str,
        message: &str,
        entry: &Entry,
    ) -> Event {
        let host = Some(self.host.clone()).filter(|host| !host.is_empty());
        Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}.", about.name.as_deref().unwrap_or("unknown"))),
                namespace: Some(namespace(&about).to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            type_: Some(match kind {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            count: Some(entry.count),
            first_timestamp: Some(Time(entry.first)),
            last_timestamp: Some(Time(Timestamp::now())),
            source: Some(EventSource {
                component: Some(self.component.clone()),
                host: host.clone(),
            }),
            reporting_component: Some(self.component.clone()),
            reporting_instance: host,
            ..Event::default()
        }
    }
}

fn creation(event: &Event) -> Request<Vec<u8>> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let body = serde_json::to_vec(event).expect("an event is text and numbers");
    request(Method::POST, path, Some("application/json"), body)
}

/// The name of an event that is written once: the object's name, its UID and the reason, within the
/// 253 characters of a name.
fn lasting_name(about: &ObjectReference, reason: &str) -> String {
    let name = about.name.as_deref().unwrap_or("unknown");
    let name = name[..name.floor_char_boundary(LONGEST_PART)].trim_end_matches(['.', '-']);
    let uid = about.uid.as_deref().unwrap_or_default();
    format!("{name}.{uid}.{}", reason.to_lowercase())
}

/// The most characters of the object's name in the name of an event that is written once.
const LONGEST_PART: usize = 180;

/// The part that is read of the answer to a new event; the answer is larger than the event.
#[derive(Deserialize)]
struct Made {
    metadata: MadeMeta,
}

#[derive(Deserialize)]
struct MadeMeta {
    name: String,
}

/// Events about cluster-wide objects live in the default namespace.
fn namespace(about: &ObjectReference) -> &str {
    about.namespace.as_deref().unwrap_or("default")
}

/// Names an event in errors.
fn what(about: &ObjectReference) -> String {
    format!("event about {}", title(about))
}

/// Names the object of an event as its kind would.
fn title(about: &ObjectReference) -> String {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let of =
        Meta { name: text(&about.name), namespace: about.namespace.clone(), ..Meta::default() };
    format!("{} {}", text(&about.kind), of.key())
}

/// The reference to an object for events about it.
pub fn object_reference<K: Kind>(object: &K) -> ObjectReference {
    let meta = object.meta();
    // `/api/v1` or `/apis/GROUP/VERSION`.
    let version = K::GROUP.trim_start_matches("/apis/").trim_start_matches("/api/");
    ObjectReference {
        api_version: Some(version.to_owned()),
        kind: Some(K::KIND.to_owned()),
        name: Some(meta.name.clone()),
        namespace: meta.namespace.clone(),
        uid: Some(meta.uid.clone()),
        resource_version: Some(meta.resource_version.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
