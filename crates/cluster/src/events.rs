mod writer;

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};

pub use self::writer::{EventWriter, Events};
use crate::{ApiFailure, Kind, bounded};

/// The two kinds of events that `kubectl` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Something went as it should.
    Normal,
    /// Someone has to look.
    Warning,
}

/// Writes core events, which are what upstream's roles grant, under one component name.
#[derive(Clone)]
pub struct EventRecorder {
    client: Client,
    component: &'static str,
    host: String,
}

impl EventRecorder {
    /// A recorder for a component on a host.
    pub fn new(client: Client, component: &'static str, host: impl Into<String>) -> Self {
        Self { client, component, host: host.into() }
    }

    /// Writes one event about an object. Whoever calls sees to it that the same thing is not said twice.
    pub async fn record(
        &self,
        about: ObjectReference,
        kind: EventType,
        reason: &str,
        message: &str,
    ) -> Result<(), ApiFailure> {
        // Events about cluster-wide objects live in the default namespace.
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let now = Time(Timestamp::now());
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}.", about.name.as_deref().unwrap_or("unknown"))),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            type_: Some(match kind {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource {
                component: Some(self.component.to_owned()),
                host: Some(self.host.clone()),
            }),
            reporting_component: Some(self.component.to_owned()),
            reporting_instance: Some(self.host.clone()),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        bounded("event", events.create(&PostParams::default(), &event)).await?;
        Ok(())
    }
}

/// The object that an event is about.
pub(crate) fn reference<K: Kind>(object: &K) -> ObjectReference {
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
