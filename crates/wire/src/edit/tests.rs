use proptest::prelude::*;
use prost::Message as _;
use wharf_proto::cri::{ContainerConfig, KeyValue, LinuxContainerConfig, LinuxContainerResources};

use super::*;

/// Field numbers of ContainerConfig that hooks change.
const ENVS: u32 = 6;
const ANNOTATIONS: u32 = 10;
const LINUX: u32 = 15;
const RESOURCES: u32 = 1;
const CPU_QUOTA: u32 = 2;
const CPUSET_CPUS: u32 = 6;

fn config() -> impl Strategy<Value = ContainerConfig> {
    let annotations = prop::collection::btree_map("[a-z]{0,3}", "[a-z]{0,5}", 0..5);
    let envs =
        prop::collection::vec(("[A-Z]{1,3}", prop::collection::vec(any::<u8>(), 0..4)), 0..5);
    let resources = prop::option::of((any::<i64>(), "[0-9,-]{0,4}"));
    (annotations, envs, resources, any::<bool>(), "[a-z]{0,6}").prop_map(
        |(annotations, envs, resources, tty, log_path)| ContainerConfig {
            annotations: annotations.into_iter().collect(),
            envs: envs.into_iter().map(|(key, value)| KeyValue { key, value }).collect(),
            linux: resources.map(|(cpu_quota, cpuset_cpus)| LinuxContainerConfig {
                resources: Some(LinuxContainerResources {
                    cpu_quota,
                    cpuset_cpus,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            tty,
            log_path,
            ..Default::default()
        },
    )
}

/// Fields that no version of the protocol defines.
fn unknown() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((2000_u32..2010, prop::collection::vec(any::<u8>(), 0..6)), 0..4)
        .prop_map(|fields| {
            let mut bytes = Vec::new();
            for (number, value) in fields {
                bytes_field(number, &value, &mut bytes);
            }
            bytes
        })
}

fn typed(bytes: &[u8]) -> ContainerConfig {
    ContainerConfig::decode(bytes).expect("still a message")
}

fn unknown_fields(bytes: &[u8]) -> Vec<Vec<u8>> {
    let all = fields(bytes).map(|field| field.expect("well formed"));
    all.filter(|field| field.number >= 2000).map(|field| field.raw.to_vec()).collect()
}

proptest! {
    #[test]
    fn nothing_changed_is_byte_for_byte_the_same(config in config(), unknown in unknown()) {
        let bytes = Bytes::from([unknown, config.encode_to_vec()].concat());
        let mut message = Message::parse(bytes.clone()).expect("message");
        message.open(LINUX).expect("message").open(RESOURCES).expect("message");
        let envs = message.all(ENVS).expect("messages");
        message.set_all(ENVS, &envs);
        prop_assert!(!message.is_changed());
        prop_assert_eq!(message.encode(), bytes);
    }

    #[test]
    fn an_edit_on_the_wire_is_the_edit_of_the_typed_message(
        config in config(),
        unknown in unknown(),
        quota: i64,
        cpuset in "[0-9,-]{0,4}",
    ) {
        let bytes = Bytes::from([config.encode_to_vec(), unknown.clone()].concat());
        let mut message = Message::parse(bytes).expect("message");
        let resources = message.open(LINUX).expect("message").open(RESOURCES).expect("message");
        resources.set_varint(CPU_QUOTA, quota.cast_unsigned());
        resources.set_bytes(CPUSET_CPUS, cpuset.as_bytes());
        let edited = message.encode();

        let mut expected = config;
        if expected.linux.is_some() || quota != 0 || !cpuset.is_empty() {
            let linux = expected.linux.get_or_insert_default();
            let resources = linux.resources.get_or_insert_default();
            (resources.cpu_quota, resources.cpuset_cpus) = (quota, cpuset);
        }
        prop_assert_eq!(typed(&edited), expected);
        prop_assert_eq!(unknown_fields(&edited), unknown_fields(&unknown));
    }

    #[test]
    fn a_message_in_several_pieces_is_their_sum(first in config(), second in config(), quota: i64) {
        let bytes = [first.linux.clone(), second.linux.clone()].into_iter().flatten().fold(Vec::new(), |mut all, linux| {
            bytes_field(LINUX, &linux.encode_to_vec(), &mut all);
            bytes_field(2000, b"between", &mut all);
            all
        });
        let bytes = Bytes::from(bytes);
        let mut message = Message::parse(bytes.clone()).expect("message");
        message.open(LINUX).expect("message").open(RESOURCES).expect("message");
        prop_assert_eq!(message.encode(), bytes.clone());
        message.set_bytes(2001, b"elsewhere");
        let kept = message.encode();
        prop_assert!(kept.starts_with(&bytes), "what is not changed stays where it was");

        let resources = message.open(LINUX).expect("message").open(RESOURCES).expect("message");
        resources.set_varint(CPU_QUOTA, quota.cast_unsigned());
        let mut expected = typed(&bytes);
        if expected.linux.is_some() || quota != 0 {
            expected.linux.get_or_insert_default().resources.get_or_insert_default().cpu_quota = quota;
        }
        prop_assert_eq!(typed(&message.encode()).linux, expected.linux);
    }

    #[test]
    fn hostile_bytes_never_panic(bytes: Vec<u8>, number in 1_u32..20) {
        if let Ok(mut message) = Message::parse(bytes.into()) {
            let _ = message.varint(number);
            let _ = message.map(number);
            let _ = message.open(number).map(|inner| inner.set_varint(1, 1));
            message.encode();
        }
    }
}

#[test]
fn a_map_has_its_entries_in_their_order() {
    let config = ContainerConfig {
        annotations: [("key".to_owned(), "value".to_owned())].into(),
        ..Default::default()
    };
    let twice = [config.encode_to_vec(), config.encode_to_vec()].concat();
    let message = Message::parse(twice.into()).expect("message");
    let entry = (Bytes::from_static(b"key"), Bytes::from_static(b"value"));
    assert_eq!(message.map(ANNOTATIONS), Ok(vec![entry.clone(), entry]));
}

#[test]
fn a_field_of_another_type_is_named() {
    let mut message = Message::parse(Bytes::from_static(&[0x08, 1])).expect("message");
    assert_eq!(message.bytes(1), Err(WireError::Type { number: 1, expected: "bytes" }));
    assert!(message.open(1).is_err());
}

/// A field takes two bytes on the wire and far more in memory.
#[test]
fn a_message_of_too_many_fields_is_refused() {
    let most = Message::parse([0x08, 1].repeat(MAX_FIELDS).into()).expect("as many as may be");
    assert_eq!(most.varint(1), Ok(Some(1)));
    let more = Bytes::from([0x08, 1].repeat(MAX_FIELDS + 1));
    let refused = Message::parse(more.clone()).map(drop);
    assert_eq!(refused, Err(WireError::Fields { most: MAX_FIELDS }));
    assert_eq!(last_bytes(&more, [2]), Ok([None]));
}

#[test]
fn a_few_texts_are_read_without_the_rest() {
    let bytes = Bytes::from_static(b"\x0a\x01a\x10\x07\x0a\x01b\x1a\x00");
    let (b, empty) = (Bytes::from_static(b"b"), Bytes::new());
    assert_eq!(last_bytes(&bytes, [3, 1, 9]), Ok([Some(empty), Some(b), None]));
    let wrong = WireError::Type { number: 2, expected: "bytes" };
    assert_eq!(last_bytes(&bytes, [1, 2]), Err(wrong));
    assert!(last_bytes(&Bytes::from_static(b"\x0a\x09"), [2]).is_err());
}
