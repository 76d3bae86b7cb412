use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

use super::InternedStr;

/// A few keys with their values, in no more memory than they need: a tree or a table takes half a
/// kilobyte for the first.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Attributes(Box<[(InternedStr, InternedStr)]>);

impl Attributes {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(own, _)| *own == key).map(|(_, value)| value)
    }

    /// All keys with their values, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The map as CSI messages have it.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        self.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

impl<K: Into<InternedStr>, V: Into<InternedStr>> FromIterator<(K, V)> for Attributes {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter().map(|(key, value)| (key.into(), value.into()));
        let mut pairs: Box<[(InternedStr, InternedStr)]> = pairs.collect();
        pairs.sort();
        Self(pairs)
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

impl<'de> Deserialize<'de> for Attributes {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(All)
    }
}

struct All;

impl<'de> Visitor<'de> for All {
    type Value = Attributes;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of strings")
    }

    fn visit_unit<E>(self) -> Result<Attributes, E> {
        Ok(Attributes::default())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut source: M) -> Result<Attributes, M::Error> {
        let mut pairs = Vec::<(InternedStr, InternedStr)>::new();
        while let Some(pair) = source.next_entry()? {
            pairs.push(pair);
        }
        Ok(pairs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_and_compared_whatever_their_order() {
        let one: Attributes = serde_json::from_str(r#"{"b":"2","a":"1"}"#).unwrap();
        assert_eq!(one, Attributes::from_iter([("a", "1"), ("b", "2")]));
        assert_eq!((one.get("b"), one.get("c")), (Some("2"), None));
        let none: Attributes = serde_json::from_str("null").unwrap();
        assert!(none.is_empty());
        assert!(serde_json::from_str::<Attributes>(r#"{"a":1}"#).is_err());
    }
}
