//! Decodes a container's environment from the runtime's JSON.
//!
//! CRI changed the type of a value from string to bytes, which Go's JSON encodes as base64.
//! containerd up to 2.2 writes `aGk=` for the value `aGk=`, later versions write it for `hi`, and
//! patch releases have switched from one to the other, so neither the value nor the version is
//! conclusive. But the document also holds the environment of the container's first process as
//! plain text, and only one of the two readings agrees with it.

use base64::{Engine, engine::general_purpose::STANDARD};
use wharf_proto::cri::KeyValue;

use crate::info::Env;

/// Decodes `written`, using `started`, the environment of the container's first process. Returns
/// `None` if both readings are possible and no variable decides between them.
pub(crate) fn read(written: Vec<Env>, started: &[String]) -> Option<Vec<KeyValue>> {
    let decoded: Option<Vec<Vec<u8>>> =
        written.iter().map(|env| STANDARD.decode(&env.value).ok()).collect();
    // A value that is not base64 was written as text, and so were all others.
    let Some(decoded) = decoded else { return Some(as_text(written)) };
    for (env, bytes) in written.iter().zip(&decoded).filter(|(env, _)| !env.value.is_empty()) {
        // JSON cannot hold bytes that are not UTF-8, neither here nor in `started`.
        let text = String::from_utf8_lossy(bytes);
        match started.iter().rev().find_map(|line| value_of(line, &env.key)) {
            Some(value) if value == env.value => return Some(as_text(written)),
            Some(value) if value == text => return Some(as_bytes(written, decoded)),
            _ => {}
        }
    }
    let decides_nothing = written.iter().all(|env| env.value.is_empty());
    decides_nothing.then(|| as_text(written))
}

fn as_text(written: Vec<Env>) -> Vec<KeyValue> {
    written.into_iter().map(|env| KeyValue { key: env.key, value: env.value.into() }).collect()
}

fn as_bytes(written: Vec<Env>, decoded: Vec<Vec<u8>>) -> Vec<KeyValue> {
    let pairs = written.into_iter().zip(decoded);
    pairs.map(|(env, value)| KeyValue { key: env.key, value }).collect()
}

fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(envs: &[(&str, &str)]) -> Vec<Env> {
        envs.iter().map(|&(key, value)| Env { key: key.into(), value: value.into() }).collect()
    }

    fn envs(pairs: &[(&str, &[u8])]) -> Option<Vec<KeyValue>> {
        let pair =
            |&(key, value): &(&str, &[u8])| KeyValue { key: key.into(), value: value.into() };
        Some(pairs.iter().map(pair).collect())
    }

    fn started(lines: &[&str]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_process_got_tells_text_from_base64() {
        let values = [("A", "aGk="), ("B", "")];
        let text = read(written(&values), &started(&["PATH=/bin", "A=aGk="]));
        assert_eq!(text, envs(&[("A", b"aGk="), ("B", b"")]));
        let bytes = read(written(&values), &started(&["A=hi", "B="]));
        assert_eq!(bytes, envs(&[("A", b"hi"), ("B", b"")]));
    }

    #[test]
    fn a_value_that_is_no_base64_was_text() {
        let values = [("A", "aGk="), ("B", "no!")];
        assert_eq!(read(written(&values), &[]), envs(&[("A", b"aGk="), ("B", b"no!")]));
        assert_eq!(read(Vec::new(), &[]), envs(&[]));
    }

    #[test]
    fn bytes_that_are_no_text_are_recognised() {
        let values = [("A", "/w==")];
        assert_eq!(read(written(&values), &started(&["A=\u{fffd}"])), envs(&[("A", b"\xff")]));
    }

    #[test]
    fn a_variable_that_was_changed_on_the_way_decides_nothing() {
        let values = [("A", "aGk="), ("B", "aG8=")];
        let bytes = read(written(&values), &started(&["A=from-a-device-plugin", "B=ho"]));
        assert_eq!(bytes, envs(&[("A", b"hi"), ("B", b"ho")]));
        assert_eq!(read(written(&values), &started(&["A=other"])), None);
    }
}
