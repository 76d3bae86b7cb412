//! The requests that reached runtime and hook server, field by field.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions,
    prost::{Message, bytes::Bytes},
};
use serde_json::Value;
use tonic::Status;
use wharf_testkit::{
    hook_server::{HookCall, Subject},
    runtime::Received,
};

use super::step::Step;

/// A field that no version of CRI has: number 9999, with the value 1.
const UNKNOWN: &[u8] = b"\xf8\xf0\x04\x01";
const FRAME: usize = 5;

static MESSAGES: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(wharf_proto::FILE_DESCRIPTOR_SET).unwrap());

/// Each field by its path: the step, who saw it, the message's own path.
#[derive(Debug, Default)]
pub(super) struct Seen {
    fields: BTreeMap<String, String>,
    /// The environment of created containers, in its order.
    pub(super) envs: BTreeMap<&'static str, Vec<String>>,
    /// Steps that reached the runtime byte for byte.
    pub(super) untouched: BTreeSet<&'static str>,
}

impl Seen {
    pub(super) fn answer(&mut self, step: &Step, answer: &Result<Bytes, Status>) {
        let path = format!("{}: answer", step.name);
        let text = match answer {
            Ok(bytes) => format!("{bytes:?}"),
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        };
        self.put(path, text);
    }

    pub(super) fn runtime(&mut self, step: &Step, sent: &Bytes, call: &Received) {
        let (_, method) = call.method.rsplit_once('/').unwrap();
        let path = self.next(format!("{}: runtime {method}", step.name));
        let message = decoded(&input(method), &call.data[FRAME..]);
        if call.data[FRAME..] == **sent {
            self.untouched.insert(step.name);
        }
        let mut document = json(&message);
        if let Some(envs) = document.pointer_mut("/config/envs") {
            let list = std::mem::take(envs);
            self.envs.insert(step.name, env_list(&list));
            *envs = env_map(&list);
        }
        self.flatten(&path, &document);
        if message.unknown_fields().count() > 0 {
            self.put(format!("{path}/unknown"), "kept".to_owned());
        }
        if call.headers.iter().any(|(name, _)| name == "x-trace") {
            self.put(format!("{path}/metadata"), "kept".to_owned());
        }
    }

    pub(super) fn hook(&mut self, step: &Step, call: &HookCall) {
        let path = self.next(format!("{}: hook {}", step.name, call.hook));
        let (name, bytes) = match &call.about {
            Subject::Pod(asked) => ("PodSandboxHookRequest", asked.encode_to_vec()),
            Subject::Container(asked) => ("ContainerResourceHookRequest", asked.encode_to_vec()),
        };
        let kind = MESSAGES.get_message_by_name(&format!("runtime.v1alpha1.{name}")).unwrap();
        self.flatten(&path, &json(&decoded(&kind, &bytes)));
        if let Some(code) = call.metadata.get("wharf-outcome-code") {
            self.put(format!("{path}/outcome"), code.clone());
        }
    }

    /// Paths at which two proxies differ, with what was seen there.
    pub(super) fn differences(&self, other: &Seen) -> Vec<(String, String, String)> {
        let paths: BTreeSet<_> = self.fields.keys().chain(other.fields.keys()).collect();
        paths
            .into_iter()
            .map(|path| (path.clone(), self.at(path).to_owned(), other.at(path).to_owned()))
            .filter(|(_, one, two)| one != two)
            .collect()
    }

    /// What was seen at a path, nothing if there was nothing.
    pub(super) fn at(&self, path: &str) -> &str {
        self.fields.get(path).map_or("", String::as_str)
    }

    /// A path for one more call of a step.
    fn next(&self, path: String) -> String {
        let taken = |path: &String| self.fields.keys().any(|key| key.starts_with(path.as_str()));
        let another = |number| format!("{path} {number}");
        if taken(&path) { (2..).map(another).find(|path| !taken(path)).unwrap() } else { path }
    }

    fn flatten(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields {
                    self.flatten(&format!("{path}/{name}"), value);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for (index, value) in items.iter().enumerate() {
                    self.flatten(&format!("{path}/{index}"), value);
                }
            }
            leaf => self.put(path.to_owned(), leaf.to_string()),
        }
    }

    fn put(&mut self, path: String, text: String) {
        self.fields.insert(path, text);
    }
}

/// A step's request as it is sent, with a field in it that nobody knows.
pub(super) fn encoded(step: &Step) -> Bytes {
    let message = DynamicMessage::deserialize(input(step.method), &step.request);
    let mut bytes =
        message.unwrap_or_else(|error| panic!("{}: {error}", step.name)).encode_to_vec();
    bytes.extend_from_slice(UNKNOWN);
    bytes.into()
}

fn input(method: &str) -> MessageDescriptor {
    let service = MESSAGES.get_service_by_name("runtime.v1.RuntimeService").unwrap();
    service.methods().find(|known| known.name() == method).unwrap().input()
}

fn decoded(kind: &MessageDescriptor, bytes: &[u8]) -> DynamicMessage {
    DynamicMessage::decode(kind.clone(), bytes).unwrap()
}

fn json(message: &DynamicMessage) -> Value {
    let options = SerializeOptions::new().use_proto_field_name(true);
    message.serialize_with_options(serde_json::value::Serializer, &options).unwrap()
}

/// The environment as `name=value`, with values as JSON has bytes.
fn env_list(envs: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entry = |env: &Value| format!("{}={}", text(&env["key"]), text(&env["value"]));
    envs.as_array().unwrap().iter().map(entry).collect()
}

/// The environment as a process sees it: of two variables of one name the last one.
fn env_map(envs: &Value) -> Value {
    let entry = |env: &Value| (env["key"].as_str().unwrap().to_owned(), env["value"].clone());
    Value::Object(envs.as_array().unwrap().iter().map(entry).collect())
}
