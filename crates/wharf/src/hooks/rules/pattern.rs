//! A name, or the beginning of names.

use serde::Deserialize;

/// `batch`, or `batch-*` for all names that begin with `batch-`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Pattern {
    Whole(String),
    Beginning(String),
}

impl Pattern {
    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Pattern::Whole(whole) => name == whole,
            Pattern::Beginning(beginning) => name.starts_with(beginning),
        }
    }
}

impl TryFrom<String> for Pattern {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        let (pattern, rest) = match text.strip_suffix('*') {
            Some(beginning) => (Pattern::Beginning(beginning.to_owned()), beginning),
            None => (Pattern::Whole(text.clone()), text.as_str()),
        };
        if text.is_empty() || rest.contains('*') {
            return Err("expected a name, or the beginning of a name with a * at the end");
        }
        Ok(pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_the_rest() {
        let matches =
            |pattern: &str, name| Pattern::try_from(pattern.to_owned()).unwrap().matches(name);
        assert!(matches("batch", "batch") && !matches("batch", "batch-1"));
        assert!(matches("batch-*", "batch-1") && !matches("batch-*", "batch"));
        assert!(matches("*", "anything"));
        for wrong in ["", "*-batch", "a*b*"] {
            assert!(Pattern::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
