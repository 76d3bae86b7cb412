//! Digest of a create request, to be stored and compared.
//!
//! An orchestrator repeats a create call until it gets an answer, and the same name must give the
//! same object. A repeated call must be compared with the *first call*, not with the object that
//! resulted. So each typed create request carries a [`Fingerprint`]: the driver stores it with the
//! object and returns it from `existing`, and the SDK compares.

use prost::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

use crate::types::Parameters;

/// Digests of the parts of a create request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    capacity: Digest,
    capabilities: Digest,
    parameters: Digest,
    mutable_parameters: Digest,
    source: Digest,
    topology: Digest,
}

impl Fingerprint {
    /// Returns the first part in which two requests differ, by its name in the protocol; `None` if
    /// they are equal.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        self.difference_but_for(other, |_| false)
    }

    /// Like [`difference`](Fingerprint::difference), but ignores the parts for which `agree`
    /// returns true.
    pub(crate) fn difference_but_for(
        &self,
        other: &Self,
        agree: impl Fn(Part) -> bool,
    ) -> Option<&'static str> {
        [
            (Part::Source, &self.source, &other.source),
            (Part::Capabilities, &self.capabilities, &other.capabilities),
            (Part::Parameters, &self.parameters, &other.parameters),
            (Part::MutableParameters, &self.mutable_parameters, &other.mutable_parameters),
            (Part::Capacity, &self.capacity, &other.capacity),
            (Part::Topology, &self.topology, &other.topology),
        ]
        .into_iter()
        .find(|(part, own, others)| own != others && !agree(*part))
        .map(|(part, ..)| part.name())
    }

    pub(crate) fn with(mut self, part: Part, bytes: &[u8]) -> Self {
        let digest = Digest::of(bytes);
        match part {
            Part::Capacity => self.capacity = digest,
            Part::Capabilities => self.capabilities = digest,
            Part::Parameters => self.parameters = digest,
            Part::MutableParameters => self.mutable_parameters = digest,
            Part::Source => self.source = digest,
            Part::Topology => self.topology = digest,
        }
        self
    }

    /// Adds a part that is one message. An absent message differs from an empty one.
    pub(crate) fn with_message(self, part: Part, message: Option<&impl Message>) -> Self {
        match message {
            Some(message) => self.with(part, &message.encode_length_delimited_to_vec()),
            None => self,
        }
    }

    pub(crate) fn with_map(self, part: Part, map: &Parameters) -> Self {
        self.with_texts(part, map.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]))
    }

    pub(crate) fn with_texts<'a>(self, part: Part, texts: impl Iterator<Item = &'a str>) -> Self {
        let mut bytes = Vec::new();
        for text in texts {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        self.with(part, &bytes)
    }
}

/// The parts of a request that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Capacity,
    Capabilities,
    Parameters,
    MutableParameters,
    Source,
    Topology,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Capacity => "the capacity range",
            Self::Capabilities => "the volume capabilities",
            Self::Parameters => "the parameters",
            Self::MutableParameters => "the mutable parameters",
            Self::Source => "the source",
            Self::Topology => "the accessibility requirements",
        }
    }
}

/// The first half of a SHA-256. It is stored as hexadecimal text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest([u8; 16]);

impl Digest {
    fn of(bytes: &[u8]) -> Self {
        let whole = Sha256::digest(bytes);
        let mut half = [0; 16];
        half.copy_from_slice(&whole[..16]);
        Self(half)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", u128::from_be_bytes(self.0)))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| text.len() == 32);
        let number = number.ok_or_else(|| de::Error::custom("expected 32 hexadecimal digits"))?;
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Parameters {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_differing_part_is_named() {
        let same = Fingerprint::default().with_map(Part::Parameters, &map(&[("a", "b")]));
        assert_eq!(same.difference(&same.clone()), None);
        let other = Fingerprint::default().with_map(Part::Parameters, &map(&[("a", "c")]));
        assert_eq!(same.difference(&other), Some("the parameters"));
        let allowed = same.difference_but_for(&other, |part| part == Part::Parameters);
        assert_eq!(allowed, None);
    }

    #[test]
    fn keys_and_values_do_not_run_into_each_other() {
        let print = |pairs| Fingerprint::default().with_map(Part::Parameters, &map(pairs));
        assert_ne!(print(&[("ab", "c")]), print(&[("a", "bc")]));
        assert_ne!(print(&[("a", "b"), ("c", "d")]), print(&[("a", "bc"), ("", "d")]));
    }

    #[test]
    fn it_can_be_stored() {
        let print = Fingerprint::default().with(Part::Source, b"v1");
        let text = serde_json::to_string(&print).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), print);
        assert!(serde_json::from_str::<Fingerprint>(&text.replacen('0', "x", 1)).is_err());
    }
}
