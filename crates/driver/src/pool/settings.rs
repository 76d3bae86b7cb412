//! Settings of a pool that may change while it is served.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use wharf_facts::quantity;

/// Settings of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolSettings {
    /// Kinds of volumes that may be created.
    pub kinds: Kinds,
    /// Bytes that are never promised; `None` means 1% of the disk, at least 64 MiB and at most 10
    /// GiB.
    pub floor: Option<u64>,
    /// Maximum bytes of thin volumes per byte of the pool.
    pub thin_ratio: ThinRatio,
    /// Free space below which no thin volume is created or grown.
    pub thin_floor: Share,
    /// Whether new volumes are refused; existing ones are served as before.
    pub drain: bool,
}

/// Kinds of volumes that a pool may create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Kind>", into = "Vec<Kind>")]
pub struct Kinds {
    thick: bool,
    thin: bool,
}

/// A kind of volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// All space is allocated on creation.
    Thick,
    /// Space is allocated when it is written.
    Thin,
}

impl Kind {
    /// The kind of a volume.
    pub fn of(thin: bool) -> Self {
        if thin { Self::Thin } else { Self::Thick }
    }
}

impl Kinds {
    /// Whether volumes of this kind may be created.
    pub fn allow(self, kind: Kind) -> bool {
        match kind {
            Kind::Thick => self.thick,
            Kind::Thin => self.thin,
        }
    }
}

/// Only thick volumes.
impl Default for Kinds {
    fn default() -> Self {
        Self { thick: true, thin: false }
    }
}

impl TryFrom<Vec<Kind>> for Kinds {
    type Error = String;

    fn try_from(kinds: Vec<Kind>) -> Result<Self, String> {
        if kinds.is_empty() {
            return Err("expected thick, thin or both".to_owned());
        }
        Ok(Self { thick: kinds.contains(&Kind::Thick), thin: kinds.contains(&Kind::Thin) })
    }
}

impl From<Kinds> for Vec<Kind> {
    fn from(kinds: Kinds) -> Self {
        [Kind::Thick, Kind::Thin].into_iter().filter(|kind| kinds.allow(*kind)).collect()
    }
}

/// For a flag: `thick`, `thin` or `thick,thin`.
impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kind = |word: &str| match word.trim() {
            "thick" => Ok(Kind::Thick),
            "thin" => Ok(Kind::Thin),
            _ => Err("expected thick, thin or thick,thin".to_owned()),
        };
        text.split(',').map(kind).collect::<Result<Vec<_>, _>>()?.try_into()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Thick => "thick",
            Self::Thin => "thin",
        })
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = Vec::from(*self).iter().map(Kind::to_string).collect();
        out.write_str(&kinds.join(","))
    }
}

/// Maximum bytes of thin volumes per byte of a pool, with three decimal places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinRatio {
    thousandths: u64,
}

impl ThinRatio {
    /// Maximum bytes of thin volumes on a pool of `total` bytes.
    pub fn of(self, total: u64) -> u64 {
        let bytes = u128::from(total) * u128::from(self.thousandths) / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// Ten bytes per byte.
impl Default for ThinRatio {
    fn default() -> Self {
        Self { thousandths: 10_000 }
    }
}

impl TryFrom<f64> for ThinRatio {
    type Error = String;

    fn try_from(ratio: f64) -> Result<Self, String> {
        if !(0.001..=1_000_000.0).contains(&ratio) {
            return Err("expected a number from 0.001 to 1000000, such as 10 or 1.5".to_owned());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range was checked"
        )]
        let thousandths = (ratio * 1000.0).round() as u64;
        Ok(Self { thousandths })
    }
}

impl FromStr for ThinRatio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<f64>().unwrap_or(f64::NAN).try_into()
    }
}

/// A part of a pool, in bytes or as a percentage of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Bytes.
    Bytes(u64),
    /// Percent of the pool.
    Percent(u8),
}

impl Share {
    /// The part of a pool of `total` bytes, in bytes.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => total / 100 * u64::from(percent),
        }
    }
}

/// Five percent.
impl Default for Share {
    fn default() -> Self {
        Self::Percent(5)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected a percentage up to 100%, or bytes such as 2Gi".to_owned();
        match text.strip_suffix('%') {
            Some(percent) => match percent.trim().parse() {
                Ok(percent @ 0..=100) => Ok(Self::Percent(percent)),
                _ => Err(expected()),
            },
            None => {
                let bytes = quantity::parse(text).map_err(|_| expected())?;
                bytes.try_into().map(Self::Bytes).map_err(|_| expected())
            }
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(out, "{bytes}"),
            Self::Percent(percent) => write!(out, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named() {
        for (text, thick, thin) in
            [("thick", true, false), ("thin", false, true), ("thick, thin", true, true)]
        {
            let kinds: Kinds = text.parse().expect(text);
            assert_eq!((kinds.allow(Kind::Thick), kinds.allow(Kind::Thin)), (thick, thin));
            assert_eq!(kinds.to_string(), text.replace(' ', ""));
        }
        for text in ["", "thick,", "fat", "Thick"] {
            assert!(text.parse::<Kinds>().is_err(), "{text}");
        }
    }

    #[test]
    fn ratios_and_shares_are_of_a_pool() {
        let ratio: ThinRatio = "1.5".parse().expect("a ratio");
        assert_eq!(ratio.of(1000), 1500);
        assert_eq!(ThinRatio::default().of(u64::MAX), u64::MAX);
        for text in ["", "0", "-1", "ten", "NaN", "inf"] {
            assert!(text.parse::<ThinRatio>().is_err(), "{text}");
        }
        assert_eq!("5%".parse::<Share>().expect("a share").of(1000), 50);
        assert_eq!("2Ki".parse::<Share>().expect("bytes").of(1000), 2048);
        for text in ["", "%", "101%", "-1", "1.5%", "5 percent"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
