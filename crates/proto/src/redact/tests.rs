//! No message prints a secret. The tests find secret fields in the descriptors, so they cover new
//! fields, too.

use std::fmt::Debug;

use prost::{DecodeError, Message};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

use crate::{cri, csi, deviceplugin, dra, hooks, pluginregistration};

/// Prints an encoded message with the `Debug` of its generated type.
type Printer = fn(&[u8]) -> Result<String, DecodeError>;

const PRINTERS: &[(&str, Printer)] = include!(concat!(env!("OUT_DIR"), "/debug_table.rs"));
const SENTINEL: &str = "s3nt1nel";
const STRIPPED: &str = "***stripped***";
const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Secret fields that have no `csi_secret` option.
const UNMARKED: &[&str] = &[
    "runtime.v1.AuthConfig.auth",
    "runtime.v1.AuthConfig.identity_token",
    "runtime.v1.AuthConfig.password",
    "runtime.v1.AuthConfig.registry_token",
    "runtime.v1.KeyValue.value",
    "runtime.v1alpha1.ContainerResourceHookRequest.container_envs",
    "runtime.v1alpha1.ContainerResourceHookResponse.container_envs",
    "v1beta1.ContainerAllocateResponse.envs",
];

#[test]
fn each_secret_field_is_stripped() {
    let pool = pool();
    let mut fields = 0;
    for (name, print) in PRINTERS {
        let descriptor = message(&pool, name);
        for field in descriptor.fields().filter(is_secret) {
            let mut message = DynamicMessage::new(descriptor.clone());
            message.set_field(&field, filled(&field));
            let text = print(&message.encode_to_vec()).unwrap();
            assert!(!tells(&text), "{}: {text}", field.full_name());
            assert!(text.contains(STRIPPED), "{}: {text}", field.full_name());
            fields += 1;
        }
    }
    assert!(fields > UNMARKED.len() + 20, "only {fields} secret fields were found");
}

#[test]
fn no_secret_shows_at_any_depth() {
    let pool = pool();
    let mut printed = 0;
    for (name, print) in PRINTERS {
        let encoded = filled_message(&message(&pool, name)).encode_to_vec();
        let text = print(&encoded).unwrap();
        assert!(!tells(&text), "{name}: {text}");
        printed += usize::from(text.contains(STRIPPED));
    }
    assert!(printed > 30, "only {printed} messages hold secrets");
}

#[test]
fn keys_of_secrets_and_the_rest_of_a_message_show() {
    let request = csi::NodePublishVolumeRequest {
        volume_id: "vol-1".to_owned(),
        secrets: [("password".to_owned(), SENTINEL.to_owned())].into(),
        volume_context: [(TOKENS_KEY, SENTINEL), ("pool", "fast")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..Default::default()
    };
    let text = format!("{request:?}");
    assert!(!tells(&text), "{text}");
    for part in [
        "NodePublishVolumeRequest { volume_id: \"vol-1\"",
        "secrets: {\"password\": ***stripped***}",
        "volume_context: {\"csi.storage.k8s.io/serviceAccount.tokens\": ***stripped***, \"pool\": \"fast\"}",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn secrets_of_nested_messages_are_stripped() {
    let env = cri::KeyValue { key: "TOKEN".to_owned(), value: SENTINEL.into() };
    let config = cri::ContainerConfig { envs: vec![env], ..Default::default() };
    let create = cri::CreateContainerRequest { config: Some(config), ..Default::default() };
    let text = format!("{create:#?}");
    assert!(text.contains("\"TOKEN\"") && text.contains(STRIPPED) && !tells(&text), "{text}");

    let auth = cri::AuthConfig {
        username: "me".to_owned(),
        password: SENTINEL.to_owned(),
        ..Default::default()
    };
    let pull = cri::PullImageRequest { auth: Some(auth), ..Default::default() };
    let text = format!("{pull:?}");
    assert!(text.contains("username: \"me\", password: ***stripped***, auth: \"\""), "{text}");
}

fn pool() -> DescriptorPool {
    DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET).unwrap()
}

fn message(pool: &DescriptorPool, name: &str) -> MessageDescriptor {
    pool.get_message_by_name(name).unwrap()
}

fn debug<M: Message + Default + Debug>(encoded: &[u8]) -> Result<String, DecodeError> {
    M::decode(encoded).map(|message| format!("{message:?}"))
}

/// Whether a text contains the sentinel, as characters or as a list of bytes.
fn tells(text: &str) -> bool {
    let bytes = format!("{:?}", SENTINEL.as_bytes());
    text.contains(SENTINEL) || text.contains(bytes.trim_matches(['[', ']']))
}

fn is_secret(field: &FieldDescriptor) -> bool {
    let options = field.options();
    let marked = options.extensions().any(|(mark, value)| {
        mark.full_name() == "csi.v1.csi_secret" && *value == Value::Bool(true)
    });
    marked || UNMARKED.contains(&field.full_name())
}

/// A message with every field set, at every depth, and each secret set to the sentinel.
fn filled_message(descriptor: &MessageDescriptor) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        message.set_field(&field, filled(&field));
    }
    message
}

fn filled(field: &FieldDescriptor) -> Value {
    let text = if is_secret(field) { SENTINEL } else { "plain" };
    if field.is_map() {
        let value = match field.kind() {
            Kind::Message(entry) => match entry.map_entry_value_field().kind() {
                Kind::Message(value) => Value::Message(filled_message(&value)),
                _ => Value::String(text.to_owned()),
            },
            kind => panic!("{}: a map of {kind:?}", field.full_name()),
        };
        let mut map = [(MapKey::String("key".to_owned()), value)];
        if field.name() == "volume_context" {
            map[0] = (MapKey::String(TOKENS_KEY.to_owned()), Value::String(SENTINEL.to_owned()));
        }
        return Value::Map(map.into());
    }
    let value = match field.kind() {
        Kind::Message(message) => Value::Message(filled_message(&message)),
        Kind::String => Value::String(text.to_owned()),
        Kind::Bytes => Value::Bytes(text.to_owned().into()),
        kind => kind.default_value(),
    };
    if field.is_list() { Value::List(vec![value]) } else { value }
}
