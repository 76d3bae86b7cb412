//! What may be shown of values and errors.

use serde::{Deserialize, Serialize};
use wharf_facts::text::cut;

use crate::edit::{Field, Value};

/// The longest name of a field: keys are chosen by others.
const LONGEST_FIELD: usize = 128;
/// The longest text. A list of CPUs is shorter on machines of any size.
const LONGEST_TEXT: usize = 1024;
/// The longest error.
const LONGEST_ERROR: usize = 512;
/// Shorter values are part of too many words.
const SHORTEST_SECRET: usize = 4;

/// What may be shown of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Shown {
    /// There is none.
    Absent,
    /// A number.
    Number(i64),
    /// A text that holds no secrets: of resources, a cgroup parent or a label.
    Text(String),
    /// The length of a text that may be a secret: of an environment variable or an annotation.
    Hidden {
        /// Its bytes.
        bytes: usize,
    },
}

impl Shown {
    pub(super) fn of(field: &Field, value: &Value) -> Self {
        match (field, value) {
            (_, Value::Absent) => Self::Absent,
            (_, Value::Number(number)) => Self::Number(*number),
            (Field::Env(_) | Field::Annotation(_), Value::Text(text)) => {
                Self::Hidden { bytes: text.len() }
            }
            (
                Field::Label(_)
                | Field::CgroupParent
                | Field::Amount(_)
                | Field::Cpuset(_)
                | Field::Unified(_),
                Value::Text(text),
            ) => Self::Text(cut(text, LONGEST_TEXT).into_owned()),
        }
    }

    /// Its bytes, more or less.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Absent | Self::Number(_) | Self::Hidden { .. } => 16,
        }
    }
}

/// A field with what may be shown of its value.
pub(crate) fn shown_field(field: &Field, value: &Value) -> (String, Shown) {
    (cut(&field.to_string(), LONGEST_FIELD).into_owned(), Shown::of(field, value))
}

/// An error, as long as it may be.
pub(crate) fn shown_error(error: &str) -> String {
    cut(error, LONGEST_ERROR).into_owned()
}

/// An error, without these values: a server may quote what it was asked with.
pub(crate) fn strike<'a>(error: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    // The longest first: one may be part of another.
    let mut secrets: Vec<_> =
        secrets.into_iter().filter(|secret| secret.len() >= SHORTEST_SECRET).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut text = error.to_owned();
    for secret in secrets {
        if text.contains(secret) {
            text = text.replace(secret, "***");
        }
    }
    text
}
