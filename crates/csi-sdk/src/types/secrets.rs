//! Maps whose values must not be printed.

use std::{collections::BTreeMap, fmt, ops::Deref};

use wharf_facts::context::SERVICE_ACCOUNT_TOKENS;

/// Keys and values from the orchestrator, such as parameters or a context.
pub type Parameters = BTreeMap<String, String>;

const STRIPPED: &str = "***stripped***";

/// Credentials of a request. They can be looked up but not printed or serialized: there is no
/// `Display`, and `Debug` shows only their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Parameters);

impl Secrets {
    /// Returns the secret of this name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Whether there are no secrets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Parameters> for Secrets {
    fn from(secrets: Parameters) -> Self {
        Self(secrets)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STRIPPED} ({})", self.0.len())
    }
}

/// Context of a volume: entries that the driver returned when it created the volume, and entries
/// that Kubernetes adds about the pod.
///
/// `Debug` hides service account tokens.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Context(Parameters);

impl From<Parameters> for Context {
    fn from(context: Parameters) -> Self {
        Self(context)
    }
}

impl From<Context> for Parameters {
    fn from(context: Context) -> Self {
        context.0
    }
}

impl Deref for Context {
    type Target = Parameters;

    fn deref(&self) -> &Parameters {
        &self.0
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(key, value): (&String, &String)| {
            let hidden = key == SERVICE_ACCOUNT_TOKENS;
            (key.clone(), if hidden { STRIPPED.to_owned() } else { value.clone() })
        };
        f.debug_map().entries(self.0.iter().map(shown)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_secrets_nor_tokens_are_printed() {
        let map = |key: &str| Parameters::from([(key.to_owned(), "hunter2".to_owned())]);
        let secrets = Secrets::from(map("password"));
        assert_eq!(secrets.get("password"), Some("hunter2"));
        assert_eq!(format!("{secrets:?}"), "***stripped*** (1)");
        let context = Context::from(map(SERVICE_ACCOUNT_TOKENS));
        assert!(!format!("{context:?}").contains("hunter2"), "{context:?}");
        assert!(format!("{:?}", Context::from(map("pod"))).contains("hunter2"));
    }
}
