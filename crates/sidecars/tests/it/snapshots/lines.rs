//! The journal of writes and calls, without parts that differ between runs.

use serde_json::{Value, json};

use super::Fixture;

impl Fixture {
    /// Waits for exactly these writes and calls.
    pub(crate) async fn expect<const N: usize>(&self, expected: [String; N]) {
        let lines = self.wait(|(lines, _)| lines.len() >= N).await.0;
        assert_eq!(lines, expected, "{lines:#?}");
    }

    /// Waits for this number of writes and calls, and returns them.
    pub(crate) async fn lines(&self, count: usize) -> Vec<String> {
        self.wait(|(lines, _)| lines.len() >= count).await.0
    }

    /// Waits for this number of writes and calls about an object, and returns them with the name of
    /// the test.
    pub(crate) async fn about(&self, name: &str, count: usize) -> Vec<String> {
        let about = |lines: &[String]| -> Vec<String> {
            let lines = lines.iter().filter(|line| line.contains(name));
            lines.map(|line| line.replace(name, self.name)).collect()
        };
        about(&self.wait(|(lines, _)| about(lines).len() >= count).await.0)
    }

    /// Waits for events with these reasons, in this order.
    pub(crate) async fn expect_events<const N: usize>(&self, expected: [&str; N]) {
        let events = self.wait(|(_, events)| events.len() >= N).await.1;
        assert_eq!(events, expected);
    }

    /// A merge patch, as the journal shows it.
    pub(crate) fn patched(&self, resource: &str, body: &Value) -> String {
        format!("PATCH {resource}/{} {body}", self.name)
    }

    /// A merge patch of metadata, as the journal shows it.
    pub(crate) fn patched_metadata(&self, resource: &str, mut metadata: Value) -> String {
        metadata["resourceVersion"] = json!("*");
        self.patched(resource, &json!({ "metadata": metadata }))
    }

    /// A patch of the status, as the journal shows it.
    pub(crate) fn patched_status(&self, resource: &str, status: &Value) -> String {
        format!("PATCH {resource}/{}/status {}", self.name, json!({ "status": status }))
    }

    /// Writes and calls, and the reasons of events: events are written concurrently, at any time
    /// after their cause.
    async fn wait(
        &self,
        enough: impl Fn(&(Vec<String>, Vec<String>)) -> bool,
    ) -> (Vec<String>, Vec<String>) {
        loop {
            let all = self.journal.lines();
            let count = all.len();
            let (events, lines): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|line| line.contains("/events"));
            // The repetition of an event only increases its count.
            let events = events.iter().filter(|line| line.starts_with("POST"));
            let sorted = (
                lines.iter().map(|line| steady(line)).collect(),
                events.map(|line| reason(line)).collect(),
            );
            if enough(&sorted) {
                return sorted;
            }
            self.journal.wait_for(count + 1).await;
        }
    }
}

fn reason(line: &str) -> String {
    let body: Value = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
    body["reason"].as_str().unwrap().to_owned()
}

fn steady(line: &str) -> String {
    let (head, body) = match line.find(" {") {
        Some(at) => (&line[..at], Some(&line[at + 1..])),
        None => (line, None),
    };
    let (method, path) = head.split_once(' ').unwrap();
    let path = path.rsplit_once("/v1/").map_or(path, |(_, rest)| rest);
    let path = match path.strip_prefix("namespaces/").and_then(|rest| rest.split_once('/')) {
        Some((_, rest)) => rest,
        None => path,
    };
    let head = masked(&format!("{method} {path}"));
    let Some(body) = body else { return head };
    // The answer's code follows the body.
    let (body, answer) = match body.rsplit_once("} -> ") {
        Some((body, code)) => (format!("{body}}}"), format!(" -> {code}")),
        None => (body.to_owned(), String::new()),
    };
    let mut body: Value = serde_json::from_str(&body).unwrap();
    if method == "PUT" {
        let finalizers = &body["metadata"]["finalizers"];
        return format!("{head} finalizers {finalizers}{answer}");
    }
    mask(&mut body);
    format!("{head} {body}{answer}")
}

fn mask(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(text),
        Value::Array(values) => values.iter_mut().for_each(mask),
        Value::Object(fields) => {
            for (key, value) in fields {
                match key.as_str() {
                    "time" | "resourceVersion" => *value = json!("*"),
                    _ => mask(value),
                }
            }
        }
        _ => {}
    }
}

/// A text with the API's UIDs replaced by `UID`.
fn masked(text: &str) -> String {
    let is_uid = |part: &[u8]| {
        part.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    let (mut shown, mut rest) = (String::new(), text);
    while !rest.is_empty() {
        match rest.as_bytes().get(..36) {
            Some(part) if is_uid(part) => {
                shown.push_str("UID");
                rest = &rest[36..];
            }
            _ => {
                let next = rest.chars().next().unwrap();
                shown.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    shown
}
