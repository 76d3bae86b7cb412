//! I/O limits of a volume's device, by the names of the mutable parameters.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use wharf_facts::context;

/// Operations and bytes per second; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Reads per second.
    pub riops: Option<u64>,
    /// Writes per second.
    pub wiops: Option<u64>,
    /// Bytes read per second.
    pub rbps: Option<u64>,
    /// Bytes written per second.
    pub wbps: Option<u64>,
}

/// One of the four limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Reads per second.
    Riops,
    /// Writes per second.
    Wiops,
    /// Bytes read per second.
    Rbps,
    /// Bytes written per second.
    Wbps,
}

/// An invalid mutable parameter; no parameter of its request is applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mutable_parameters.{key}: expected {expected}")]
pub struct LimitsError {
    /// Key of the parameter.
    pub key: String,
    /// The expected keys or values.
    pub expected: &'static str,
}

impl Limit {
    /// All limits.
    pub const ALL: [Self; 4] = [Self::Riops, Self::Wiops, Self::Rbps, Self::Wbps];

    /// Key of the parameter, which is also its key in cgroup v2's io.max.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Riops => "riops",
            Self::Wiops => "wiops",
            Self::Rbps => "rbps",
            Self::Wbps => "wbps",
        }
    }
}

impl Limits {
    /// Returns these limits with `parameters` applied. Absent keys change nothing.
    ///
    /// # Errors
    /// On an unknown key or value; then no parameter is applied.
    pub fn with(&self, parameters: &BTreeMap<String, String>) -> Result<Self, LimitsError> {
        let mut limits = *self;
        // Skip the names of claim and volume, which the provisioner may add.
        for (key, value) in parameters.iter().filter(|(key, _)| !key.starts_with(context::PREFIX)) {
            let limit = Limit::ALL.into_iter().find(|limit| limit.key() == key);
            let limit = limit.ok_or_else(|| error(key, "one of riops, wiops, rbps and wbps"))?;
            *limits.slot(limit) = match value.as_str() {
                "max" => None,
                number => match number.parse() {
                    Ok(number) if number > 0 => Some(number),
                    _ => return Err(error(key, "a whole number above 0, or \"max\" for no limit")),
                },
            };
        }
        Ok(limits)
    }

    /// Returns one limit.
    pub fn get(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::Riops => self.riops,
            Limit::Wiops => self.wiops,
            Limit::Rbps => self.rbps,
            Limit::Wbps => self.wbps,
        }
    }

    /// Whether there are no limits.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    fn slot(&mut self, limit: Limit) -> &mut Option<u64> {
        match limit {
            Limit::Riops => &mut self.riops,
            Limit::Wiops => &mut self.wiops,
            Limit::Rbps => &mut self.rbps,
            Limit::Wbps => &mut self.wbps,
        }
    }
}

fn error(key: &str, expected: &'static str) -> LimitsError {
    LimitsError { key: key.to_owned(), expected }
}

impl fmt::Display for Limits {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, limit) in Limit::ALL.into_iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            match self.get(limit) {
                Some(value) => write!(out, "{gap}{}={value}", limit.key())?,
                None => write!(out, "{gap}{}=max", limit.key())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn absent_keys_change_nothing() {
        let old = Limits { riops: Some(5), wbps: Some(7), ..Limits::default() };
        let new = old.with(&parameters(&[("riops", "max"), ("wiops", "9")])).expect("known keys");
        assert_eq!(new, Limits { wiops: Some(9), wbps: Some(7), ..Limits::default() });
        assert_eq!(new.to_string(), "riops=max wiops=9 rbps=max wbps=7");
    }

    #[test]
    fn metadata_is_no_limit() {
        let named = parameters(&[("wiops", "9"), (context::PVC_NAME, "data")]);
        let expected = Limits { wiops: Some(9), ..Limits::default() };
        assert_eq!(Limits::default().with(&named).expect("metadata is left alone"), expected);
    }

    #[test]
    fn one_bad_key_or_value_refuses_all() {
        let limits = Limits::default();
        let refused =
            limits.with(&parameters(&[("riops", "1"), ("speed", "9")])).expect_err("unknown");
        assert_eq!(refused.key, "speed");
        for value in ["0", "-1", "", "1k", "18446744073709551616"] {
            assert!(limits.with(&parameters(&[("rbps", value)])).is_err(), "{value}");
        }
    }
}
