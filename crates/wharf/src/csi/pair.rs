use std::{collections::BTreeMap, str::FromStr};

use wharf_proto::csi::Topology;

/// A key and its value on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair(String, String);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok(Self(key.to_owned(), value.to_owned())),
            _ => Err("expected KEY=VALUE".to_owned()),
        }
    }
}

/// The pairs as a map for a request. The last value of a key wins.
pub(crate) fn map(pairs: Vec<Pair>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|Pair(key, value)| (key, value)).collect()
}

/// The pairs as one topology; an empty list if there are no pairs.
pub(crate) fn topology(pairs: Vec<Pair>) -> Option<Topology> {
    (!pairs.is_empty()).then(|| Topology { segments: map(pairs) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_hold_anything() {
        assert_eq!("a=b=c".parse(), Ok(Pair("a".into(), "b=c".into())));
        assert_eq!("a=".parse(), Ok(Pair("a".into(), String::new())));
        for wrong in ["", "a", "=b"] {
            assert!(wrong.parse::<Pair>().is_err(), "{wrong}");
        }
    }
}
