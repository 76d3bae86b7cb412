use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use wharf_facts::quantity;

/// Bytes, as the API writes them: `1Gi`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub i64);

/// The size among resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Sizes {
    /// The storage size.
    pub storage: Option<Size>,
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&quantity::canonical(self.0))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_any(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Size;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a quantity of bytes, such as 1Gi")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        quantity::parse_rounded_up(text).map(Size).map_err(E::custom)
    }

    fn visit_i64<E>(self, bytes: i64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
        i64::try_from(bytes).map(Size).map_err(E::custom)
    }
}
