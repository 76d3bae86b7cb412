//! A container's environment.

use std::{collections::BTreeMap, fmt};

/// Environment variables by name. Values may be secrets, so `Debug` prints their lengths only.
///
/// The protocol carries text: a variable with a value that is not UTF-8 is missing here, and is
/// kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// The value of a variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether it has no variables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(crate) fn set(&mut self, name: String, value: String) {
        self.0.insert(name, value);
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lengths = self.iter().map(|(name, value)| (name, Length(value.len())));
        f.debug_map().entries(lengths).finish()
    }
}

impl From<BTreeMap<String, String>> for Env {
    fn from(variables: BTreeMap<String, String>) -> Self {
        Self(variables)
    }
}

impl From<Env> for BTreeMap<String, String> {
    fn from(env: Env) -> Self {
        env.0
    }
}

/// Stands for a value in `Debug`.
struct Length(usize);

impl fmt::Debug for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_printed() {
        let mut env = Env::default();
        env.set("TOKEN".to_owned(), "hunter2".to_owned());
        assert_eq!(format!("{env:?}"), r#"{"TOKEN": <7 bytes>}"#);
    }
}
