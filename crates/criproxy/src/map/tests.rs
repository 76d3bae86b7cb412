use proptest::prelude::*;
use prost::Message as _;
use wharf_proto::cri::{ContainerConfig, KeyValue};

use super::*;

const ENVS: u32 = 6;

fn map(pairs: &[(&str, &str)]) -> Map {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn list(pairs: &[(&str, &[u8])]) -> Message {
    let envs = pairs.iter().map(|&(key, value)| KeyValue { key: key.into(), value: value.into() });
    let config = ContainerConfig { envs: envs.collect(), ..Default::default() };
    Message::parse(config.encode_to_vec().into()).unwrap()
}

fn listed(message: &Message) -> Vec<(String, Vec<u8>)> {
    let config = ContainerConfig::decode(message.encode()).unwrap();
    config.envs.into_iter().map(|env| (env.key, env.value)).collect()
}

fn owned(pairs: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn an_answer_adds_and_overwrites_and_removes_nothing() {
    let cases: [(&[_], &[_], &[_]); 5] = [
        (&[], &[("a", "1")], &[("a", "1")]),
        (&[("a", "1")], &[], &[("a", "1")]),
        (&[("a", "1")], &[("a", "2")], &[("a", "2")]),
        (&[("a", "1")], &[("b", "2")], &[("a", "1"), ("b", "2")]),
        (&[], &[], &[]),
    ];
    for (sent, answer, expected) in cases {
        let mut result = map(sent);
        for edit in merged(&map(sent), &map(answer), Field::Label) {
            assert_ne!(edit.from, edit.to);
            let Field::Label(key) = &edit.field else { panic!("{edit:?}") };
            apply(&mut result, key, &edit.to);
        }
        assert_eq!(result, map(expected));
    }
}

#[test]
fn a_key_without_a_value_is_not_an_absent_key() {
    let edits: Vec<_> = merged(&map(&[]), &map(&[("a", "")]), Field::Annotation).collect();
    assert_eq!(edits[0].from, Value::Absent);
    assert_eq!(edits[0].to, Value::Text(String::new()));
}

#[test]
fn order_and_repetitions_stay() {
    let mut message = list(&[("B", b"1"), ("A", b"first"), ("C", b"3"), ("A", b"last")]);
    let seen = read(&message, ENVS).unwrap();
    assert_eq!(seen, map(&[("A", "last"), ("B", "1"), ("C", "3")]));
    let changes = [("A", Some("new")), ("C", None), ("Z", Some("")), ("D", Some("4"))];
    write(&mut message, ENVS, &changes.into()).unwrap();
    let expected: [(_, &[u8]); 5] =
        [("B", b"1"), ("A", b"first"), ("A", b"new"), ("D", b"4"), ("Z", b"")];
    assert_eq!(listed(&message), owned(&expected));
}

#[test]
fn what_is_no_text_is_not_shown_and_stays() {
    let mut message = list(&[("RAW", b"\xff"), ("SHADOWED", b"text"), ("SHADOWED", b"\xfe")]);
    assert_eq!(read(&message, ENVS), Ok(map(&[])));
    replace(&mut message, ENVS, &map(&[("NEW", "n"), ("RAW", "set")])).unwrap();
    let expected: [(_, &[u8]); 5] = [
        ("RAW", b"\xff"),
        ("SHADOWED", b"text"),
        ("SHADOWED", b"\xfe"),
        ("NEW", b"n"),
        ("RAW", b"set"),
    ];
    assert_eq!(listed(&message), owned(&expected));
}

#[test]
fn a_value_that_is_there_and_empty_stays_as_it_was_written() {
    let written = Bytes::from_static(b"\x32\x05\x0a\x01A\x12\x00");
    let mut message = Message::parse(written.clone()).unwrap();
    replace(&mut message, ENVS, &map(&[("A", "")])).unwrap();
    assert_eq!(message.encode(), written);
}

#[test]
fn a_mebibyte_of_answers_is_not_quadratic() {
    let keys: Vec<String> = (0..50_000).map(|number| format!("key-{number}")).collect();
    let mut message = Message::default();
    for value in ["a", "b"] {
        let changes = keys.iter().map(|key| (key.as_str(), Some(value))).collect();
        write(&mut message, ENVS, &changes).unwrap();
    }
    let read = read(&message, ENVS).unwrap();
    assert_eq!(read.len(), keys.len());
    assert!(read.values().all(|value| value == "b"));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        before in prop::collection::vec(("[a-c]", "[x-z]{0,1}"), 0..6),
        whole in prop::collection::btree_map("[a-d]", "[x-z]{0,1}", 0..4),
    ) {
        let pairs: Vec<_> = before.iter().map(|(key, value)| (key.as_str(), value.as_bytes())).collect();
        let mut message = list(&pairs);
        let same = read(&message, ENVS).unwrap();
        replace(&mut message, ENVS, &same).unwrap();
        prop_assert!(!message.is_changed());
        replace(&mut message, ENVS, &whole).unwrap();
        prop_assert_eq!(read(&message, ENVS).unwrap(), whole);
    }
}
