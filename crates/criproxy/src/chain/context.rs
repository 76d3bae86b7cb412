//! The facts about a call that accompany its questions.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use prost::Message;
use tokio::time::Instant;
use tonic::{
    Code,
    metadata::{AsciiMetadataValue, MetadataMap},
};
use wharf_facts::{
    hook::{OUTCOME_CODE, OUTCOME_DURATION, OUTCOME_MESSAGE},
    text::cut,
};
use wharf_proto::hooks::ContainerResourceHookRequest;

use super::budget::HookTime;
use crate::{HookPoint, explain};

/// The longest message of an outcome, before it is encoded.
const LONGEST_MESSAGE: usize = 1024;

/// The call that servers are asked about.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallContext {
    /// The pod, as `namespace/name`.
    pub(crate) pod: String,
    /// The container, by name.
    pub(crate) container: Option<String>,
    /// The id of the sandbox or container, once there is one.
    pub(crate) id: Option<String>,
    /// The id of a container's sandbox, if that is known.
    pub(crate) pod_id: Option<String>,
    /// The encoded first part of each question: for containers, the fields about the pod.
    pub(crate) encoded_pod: Arc<[u8]>,
    /// The encoded last part of questions to servers that want details.
    pub(crate) details: Arc<[u8]>,
    /// The time that hooks of the call took so far.
    pub(crate) time: HookTime,
    /// The points of the call that are still to come.
    pub(crate) later: &'static [HookPoint],
    /// When the caller stops waiting.
    pub(crate) ends: Option<Instant>,
    /// The caller's trace headers.
    pub(crate) trace: Trace,
    /// The records of the call.
    pub(crate) records: explain::OfCall,
}

impl CallContext {
    /// Possible secrets of a container's pod and details: annotations, command and arguments.
    pub(super) fn secrets(&self) -> Vec<String> {
        let decode =
            |encoded_pod| ContainerResourceHookRequest::decode(encoded_pod).unwrap_or_default();
        let pod = decode(&*self.encoded_pod).pod_annotations.into_values();
        let details = decode(&*self.details).details.unwrap_or_default();
        pod.chain(details.command).chain(details.args).collect()
    }

    /// The same, for a container in this sandbox.
    pub(crate) fn within(self, sandbox: &str) -> Self {
        Self { pod_id: Some(sandbox.to_owned()), ..self }
    }
}

/// The trace headers of W3C.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(MetadataMap);

impl Trace {
    const NAMES: [&str; 3] = ["traceparent", "tracestate", "baggage"];

    /// The trace headers of a call.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut trace = HeaderMap::new();
        for name in Self::NAMES {
            for value in headers.get_all(name) {
                trace.append(name, value.clone());
            }
        }
        Self(MetadataMap::from_headers(trace))
    }

    pub(super) fn metadata(&self) -> MetadataMap {
        self.0.clone()
    }
}

/// How the runtime's call ended, for servers that are notified afterwards.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) duration: Duration,
}

impl Outcome {
    /// Adds the outcome to metadata, which servers may ignore.
    pub(super) fn add_to(&self, metadata: &mut MetadataMap) {
        let message = percent_encoded(&cut(&self.message, LONGEST_MESSAGE));
        for (name, value) in [
            (OUTCOME_CODE, i32::from(self.code).to_string()),
            (OUTCOME_MESSAGE, message),
            (OUTCOME_DURATION, self.duration.as_millis().to_string()),
        ] {
            let value: AsciiMetadataValue = value.parse().expect("digits, or encoded");
            metadata.insert(name, value);
        }
    }
}

/// Encodes text like gRPC encodes `grpc-message`.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_message_fits_into_metadata() {
        for (message, expected) in [
            ("", "".to_owned()),
            ("100 % sure", "100 %25 sure".to_owned()),
            ("a\nb\u{7f}", "a%0Ab%7F".to_owned()),
            ("ä", "%C3%A4".to_owned()),
            (&"x".repeat(1025), format!("{}... (1 bytes more)", "x".repeat(1024))),
        ] {
            let duration = Duration::from_micros(1_999);
            let outcome = Outcome { code: Code::NotFound, message: message.to_owned(), duration };
            let mut metadata = MetadataMap::new();
            outcome.add_to(&mut metadata);
            assert_eq!(metadata.get(OUTCOME_CODE).unwrap(), "5");
            assert_eq!(metadata.get(OUTCOME_MESSAGE).unwrap(), expected.as_str());
            assert_eq!(metadata.get(OUTCOME_DURATION).unwrap(), "1");
        }
    }

    #[test]
    fn a_trace_is_followed_and_nothing_else() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("traceparent", "00-1-2-01"),
            ("tracestate", "a=1"),
            ("tracestate", "b=2"),
            ("authorization", "x"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let metadata = Trace::of(&headers).metadata();
        assert_eq!(metadata.len(), 3);
        let states: Vec<_> = metadata.get_all("tracestate").iter().collect();
        assert_eq!(states, ["a=1", "b=2"]);
    }
}
