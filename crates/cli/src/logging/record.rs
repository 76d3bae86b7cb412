use std::{error::Error, fmt};

use jiff::Timestamp;
use tracing::{
    Level,
    field::{Field, Visit},
};

/// An event, to be formatted.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) time: Timestamp,
    pub(super) level: Level,
    pub(super) file: &'a str,
    pub(super) line: u32,
    pub(super) fields: Fields,
}

/// The fields of an event or span, in order, each key once.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    pub(super) message: String,
    pub(super) error: Option<String>,
    pub(super) values: Vec<(&'static str, Value)>,
}

/// A recorded value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    /// A string.
    Text(String),
    /// The output of a value's `Debug` or `Display`: `tracing` does not distinguish them.
    Debug(String),
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match field.name() {
            "message" => self.message = value.into_text(),
            "err" | "error" => self.error = Some(value.into_text()),
            name => match self.values.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value,
                None => self.values.push((name, value)),
            },
        }
    }

    /// Adds the fields of an enclosing span.
    pub(super) fn extend(&mut self, outer: &Self) {
        for (name, value) in &outer.values {
            match self.values.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = value.clone(),
                None => self.values.push((name, value.clone())),
            }
        }
        if let Some(error) = &outer.error {
            self.error = Some(error.clone());
        }
    }
}

impl Value {
    fn into_text(self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Uint(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Text(text) | Self::Debug(text) => text,
        }
    }
}

impl Visit for Fields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::Bool(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::Int(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::Uint(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::Float(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::Text(value.to_owned()));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        self.put(field, Value::Text(text));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::Debug(format!("{value:?}")));
    }
}

/// The value as JSON, if the output of `Debug` is valid JSON.
pub(super) fn debug_json(text: &str) -> Option<serde_json::Value> {
    text.starts_with(['[', '{', '"']).then(|| serde_json::from_str(text).ok())?
}

/// The string whose `Debug` output is `text`; `None` if it is not that of a string.
pub(super) fn debug_string(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut escaped = false;
    for c in inner.chars() {
        match c {
            '"' if !escaped => return None,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    (!escaped).then_some(inner)
}
