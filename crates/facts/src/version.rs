//! Versions of CSI that a plugin supports, from its registration.

use std::{cmp::Ordering, fmt};

/// Two or more numbers: `1.0.0`. Missing ones count as zero, so `1.2` equals `1.2.0`.
#[derive(Clone, Debug)]
pub struct Version {
    /// At least two.
    numbers: Vec<u64>,
}

/// Why no version of a plugin can be used. The texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The plugin listed no version.
    #[error("empty array for supported versions")]
    Empty,
    /// No version could be parsed, or all of them are newer than 1.x.
    #[error(
        "could not find a highest supported version from versions ([{}]) reported: {}",
        .versions.join(" "),
        .cause.as_ref().map_or_else(|| "<nil>".to_owned(), ToString::to_string)
    )]
    NotFound {
        /// The plugin's versions.
        versions: Vec<String>,
        /// Why the first unreadable version could not be parsed.
        cause: Option<ParseVersionError>,
    },
    /// Only versions 0.x.
    #[error("highest supported version reported is {0}, must be v1.x")]
    TooOld(String),
}

/// Why a string is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseVersionError {
    /// It does not begin with a number.
    #[error("could not parse {0:?} as version")]
    NoNumber(String),
    /// It is one number alone.
    #[error("illegal version string {0:?}")]
    OneNumber(String),
    /// Its first number has a leading zero.
    #[error("illegal zero-prefixed version component {number:?} in {version:?}")]
    LeadingZero {
        /// The number.
        number: String,
        /// The whole string.
        version: String,
    },
    /// A number does not fit into 64 bits.
    #[error(
        "illegal non-numeric version component {number:?} in {version:?}: \
         strconv.ParseUint: parsing {number:?}: value out of range"
    )]
    TooLarge {
        /// The number.
        number: String,
        /// The whole string.
        version: String,
    },
}

/// The highest of `versions` that is 1.x. Skips unreadable ones, and those from 2.0 on.
pub fn highest_supported_version<S: AsRef<str>>(versions: &[S]) -> Result<Version, VersionError> {
    if versions.is_empty() {
        return Err(VersionError::Empty);
    }
    let mut highest: Option<Version> = None;
    let mut cause = None;
    // From the end, like upstream: of equal versions the last one is kept, of the errors the first.
    for version in versions.iter().rev() {
        match Version::parse(version.as_ref()) {
            Err(error) => cause = Some(error),
            Ok(version) if version.major() > 1 => {}
            Ok(version) => {
                if highest.as_ref().is_none_or(|highest| *highest < version) {
                    highest = Some(version);
                }
            }
        }
    }
    let Some(highest) = highest else {
        let versions = versions.iter().map(|version| version.as_ref().to_owned()).collect();
        return Err(VersionError::NotFound { versions, cause });
    };
    if highest.major() != 1 {
        return Err(VersionError::TooOld(highest.to_string()));
    }
    Ok(highest)
}

impl Version {
    /// Parses a version: an optional `v`, then the numbers; any text may follow.
    pub fn parse(text: &str) -> Result<Self, ParseVersionError> {
        let rest = text.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let rest = rest.strip_prefix('v').unwrap_or(rest);
        let parts = leading_numbers(rest);
        if parts.is_empty() || rest.contains('\n') {
            return Err(ParseVersionError::NoNumber(text.to_owned()));
        }
        if parts.len() < 2 {
            return Err(ParseVersionError::OneNumber(text.to_owned()));
        }
        if parts[0].len() > 1 && parts[0].starts_with('0') {
            return Err(ParseVersionError::LeadingZero {
                number: parts[0].to_owned(),
                version: text.to_owned(),
            });
        }
        let number = |part: &str| {
            let too_large = |_| ParseVersionError::TooLarge {
                number: part.to_owned(),
                version: text.to_owned(),
            };
            part.parse().map_err(too_large)
        };
        Ok(Self { numbers: parts.into_iter().map(number).collect::<Result<_, _>>()? })
    }

    /// The first number.
    #[must_use]
    pub fn major(&self) -> u64 {
        self.numbers[0]
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, number) in self.numbers.iter().enumerate() {
            if position > 0 {
                f.write_str(".")?;
            }
            write!(f, "{number}")?;
        }
        Ok(())
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let length = self.numbers.len().max(other.numbers.len());
        let padded = |version: &Self| {
            let mut numbers = version.numbers.clone();
            numbers.resize(length, 0);
            numbers
        };
        padded(self).cmp(&padded(other))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

/// The dotted numbers at the beginning of `text`, as they are written.
fn leading_numbers(text: &str) -> Vec<&str> {
    let mut numbers = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
        if end == 0 {
            return numbers;
        }
        numbers.push(&rest[..end]);
        match rest[end..].strip_prefix('.') {
            Some(next) => rest = next,
            None => return numbers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_1_x_is_chosen() {
        for (versions, expected) in [
            (&["v1.0.0"][..], "1.0.0"),
            (&["0.3.0", "0.2.0", "1.0.0"], "1.0.0"),
            (&["1.2.3", "1.10.0", "1.9"], "1.10.0"),
            (&["2.0.0", "1.0.0", "99.1"], "1.0.0"),
            (&["garbage", "1.1", ""], "1.1"),
            (&["1.0.0", "1.0"], "1.0"),
            (&[" \t1.2-rc.1+build trailing"], "1.2"),
            (&["1.02.x"], "1.2"),
            (&["v1.3."], "1.3"),
        ] {
            let version = highest_supported_version(versions)
                .unwrap_or_else(|error| panic!("{versions:?}: {error}"));
            assert_eq!(version.to_string(), expected, "{versions:?}");
        }
    }

    #[test]
    fn refusals_are_in_upstreams_words() {
        let not_found = "could not find a highest supported version from versions";
        for (versions, expected) in [
            (&[][..], "empty array for supported versions".to_owned()),
            (
                &["0.3.0", "0.2"],
                "highest supported version reported is 0.3.0, must be v1.x".to_owned(),
            ),
            (&["2.0.0", "3.0"], format!("{not_found} ([2.0.0 3.0]) reported: <nil>")),
            (
                &["x", "2.0.0", "1"],
                format!("{not_found} ([x 2.0.0 1]) reported: could not parse \"x\" as version"),
            ),
            (&["1"], format!("{not_found} ([1]) reported: illegal version string \"1\"")),
            (&[".1"], format!("{not_found} ([.1]) reported: could not parse \".1\" as version")),
            (
                &["01.0"],
                format!(
                    "{not_found} ([01.0]) reported: illegal zero-prefixed version component \"01\" in \"01.0\""
                ),
            ),
            (
                &["1.99999999999999999999"],
                format!(
                    "{not_found} ([1.99999999999999999999]) reported: illegal non-numeric version component \
                     \"99999999999999999999\" in \"1.99999999999999999999\": strconv.ParseUint: parsing \
                     \"99999999999999999999\": value out of range"
                ),
            ),
        ] {
            let error = highest_supported_version(versions).expect_err(&format!("{versions:?}"));
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn missing_numbers_are_zeros() {
        let version = |text| Version::parse(text).unwrap();
        assert_eq!(version("1.2"), version("v1.2.0.0"));
        assert!(version("1.2") < version("1.2.0.1"));
        assert!(version("1.10") > version("1.9.9"));
    }
}
