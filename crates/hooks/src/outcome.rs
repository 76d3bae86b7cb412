//! The runtime's answer to a call.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use tonic::{Code, metadata::MetadataMap};
use wharf_facts::hook::{OUTCOME_CODE, OUTCOME_DURATION, OUTCOME_MESSAGE};

/// The runtime's answer to the call that a post hook follows.
///
/// The proxy sends it as metadata of the request, which servers may ignore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The gRPC code; [`Code::Ok`] if the call succeeded.
    pub code: Code,
    /// The error message.
    pub message: String,
    /// How long the call took.
    pub duration: Duration,
}

impl Outcome {
    /// Whether the call succeeded.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.code == Code::Ok
    }

    /// Reads it from the request's metadata; `None` if the proxy sent none.
    pub(crate) fn read(metadata: &MetadataMap) -> Option<Self> {
        let text = |key: &str| metadata.get(key)?.to_str().ok();
        let code = text(OUTCOME_CODE)?.parse().ok()?;
        let message = text(OUTCOME_MESSAGE).unwrap_or_default();
        let millis = text(OUTCOME_DURATION).and_then(|text| text.parse().ok());
        Some(Self {
            code: Code::from_i32(code),
            message: percent_decode_str(message).decode_utf8_lossy().into_owned(),
            duration: Duration::from_millis(millis.unwrap_or_default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: &[(&'static str, &'static str)]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for (key, value) in pairs {
            metadata.insert(*key, value.parse().unwrap());
        }
        metadata
    }

    #[test]
    fn what_the_proxy_tells() {
        let sent = metadata(&[
            ("wharf-outcome-code", "5"),
            ("wharf-outcome-message", "no container %22a%22: 100%25 gone%0A"),
            ("wharf-outcome-duration-ms", "1500"),
        ]);
        let outcome = Outcome::read(&sent).unwrap();
        assert_eq!(outcome.code, Code::NotFound);
        assert_eq!(outcome.message, "no container \"a\": 100% gone\n");
        assert_eq!(outcome.duration, Duration::from_millis(1500));
        assert!(!outcome.is_ok());
    }

    #[test]
    fn an_older_proxy_tells_nothing() {
        assert_eq!(Outcome::read(&metadata(&[])), None);
        assert_eq!(Outcome::read(&metadata(&[("wharf-outcome-code", "fine")])), None);
    }
}
