//! Requested sizes.

use serde::{Deserialize, Serialize};

/// Minimum and maximum size of a volume in bytes.
///
/// The default has neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityRange {
    /// Minimum size; 0 leaves it to the driver.
    pub required: u64,
    /// Maximum size, at least `required`.
    pub limit: Option<u64>,
}

impl CapacityRange {
    /// Whether a volume of this size satisfies the range.
    #[must_use]
    pub fn contains(&self, size: u64) -> bool {
        size >= self.required && self.limit.is_none_or(|limit| size <= limit)
    }

    /// Returns the smallest size that satisfies the range and that the storage supports: a multiple
    /// of `granularity`, from `min` to `max`.
    ///
    /// A request without a size gets `min`, rounded up.
    ///
    /// ```
    /// use wharf_csi_sdk::types::CapacityRange;
    ///
    /// const MIB: u64 = 1 << 20;
    /// let range = CapacityRange { required: 5 * MIB + 1, limit: None };
    /// assert_eq!(range.fit(MIB, MIB, 64 * MIB), Ok(6 * MIB));
    /// let exact = CapacityRange { limit: Some(5 * MIB + 1), ..range };
    /// assert!(exact.fit(MIB, MIB, 64 * MIB).is_err());
    /// ```
    pub fn fit(&self, granularity: u64, min: u64, max: u64) -> Result<u64, OutOfRange> {
        let wanted = self.required.max(min);
        let size = wanted.checked_next_multiple_of(granularity.max(1));
        let Some(size) = size.filter(|size| *size <= max) else {
            return Err(OutOfRange::TooLarge { wanted, max });
        };
        match self.limit {
            Some(limit) if size > limit => Err(OutOfRange::AboveLimit { size, limit }),
            _ => Ok(size),
        }
    }

    /// Like [`fit`](CapacityRange::fit), to expand a volume of `current` bytes, in the control
    /// plane or on a node. A volume that is large enough keeps its size.
    pub fn fit_growth(&self, granularity: u64, current: u64, max: u64) -> Result<u64, OutOfRange> {
        if self.required <= current { Ok(current) } else { self.fit(granularity, current, max) }
    }

    /// Like [`fit`](CapacityRange::fit), for a volume created from a source of `source` bytes. A
    /// smaller request is refused; for a larger one the driver must also expand the filesystem.
    pub fn fit_source(&self, granularity: u64, source: u64, max: u64) -> Result<u64, OutOfRange> {
        if (1..source).contains(&self.required) {
            return Err(OutOfRange::BelowSource { required: self.required, source_size: source });
        }
        self.fit(granularity, source, max)
    }
}

/// Why no size satisfies a [`CapacityRange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfRange {
    /// The storage does not support volumes of this size.
    #[error("capacity_range: {wanted} bytes are required, but at most {max} are available")]
    TooLarge {
        /// Minimum size that satisfies the request.
        wanted: u64,
        /// Maximum size of a volume.
        max: u64,
    },
    /// The requested size is smaller than the source.
    #[error(
        "capacity_range.required_bytes: expected at least the {source_size} bytes of the source, not {required}"
    )]
    BelowSource {
        /// The requested size.
        required: u64,
        /// Size of the source.
        source_size: u64,
    },
    /// The smallest supported size exceeds `limit_bytes`.
    #[error(
        "capacity_range.limit_bytes: the smallest volume has {size} bytes, expected at most {limit}"
    )]
    AboveLimit {
        /// The smallest size that the storage supports.
        size: u64,
        /// The requested limit.
        limit: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn range(required: u64, limit: Option<u64>) -> CapacityRange {
        CapacityRange { required, limit }
    }

    #[test]
    fn the_smallest_size_that_fits() {
        assert_eq!(range(0, None).fit(MIB, 4 * MIB, 64 * MIB), Ok(4 * MIB));
        assert_eq!(range(5 * MIB + 1, None).fit(MIB, 0, 64 * MIB), Ok(6 * MIB));
        assert_eq!(range(0, Some(4 * MIB)).fit(MIB, 4 * MIB, 64 * MIB), Ok(4 * MIB));
        assert_eq!(range(64 * MIB, None).fit(MIB, 0, 64 * MIB), Ok(64 * MIB));
        assert_eq!(range(7, None).fit(0, 0, 64), Ok(7));
    }

    #[test]
    fn rounding_past_the_limit_is_out_of_range() {
        let limit = 5 * MIB + 2;
        let refused = range(5 * MIB + 1, Some(limit)).fit(MIB, 0, 64 * MIB);
        assert_eq!(refused, Err(OutOfRange::AboveLimit { size: 6 * MIB, limit }));
        let refused = range(0, Some(MIB)).fit(MIB, 4 * MIB, 64 * MIB);
        assert_eq!(refused, Err(OutOfRange::AboveLimit { size: 4 * MIB, limit: MIB }));
    }

    #[test]
    fn a_volume_grows_by_whole_blocks_or_not_at_all() {
        let (current, max) = (4 * MIB, 64 * MIB);
        for (required, grown) in
            [(0, current), (MIB, current), (current, current), (current + 1, 5 * MIB)]
        {
            assert_eq!(range(required, None).fit_growth(MIB, current, max), Ok(grown));
        }
        assert_eq!(range(MIB, Some(MIB)).fit_growth(MIB, current, max), Ok(current));
        assert!(range(current + 1, Some(current + 2)).fit_growth(MIB, current, max).is_err());
        assert!(range(max + 1, None).fit_growth(MIB, current, max).is_err());
    }

    #[test]
    fn a_source_has_to_fit() {
        let (source, max) = (4 * MIB, 64 * MIB);
        assert_eq!(range(0, None).fit_source(MIB, source, max), Ok(source));
        assert_eq!(range(6 * MIB, None).fit_source(MIB, source, max), Ok(6 * MIB));
        let refused = range(MIB, None).fit_source(MIB, source, max);
        assert_eq!(refused, Err(OutOfRange::BelowSource { required: MIB, source_size: source }));
        assert!(range(0, Some(MIB)).fit_source(MIB, source, max).is_err());
    }

    #[test]
    fn more_than_there_is_is_out_of_range() {
        for wanted in [64 * MIB + 1, u64::MAX] {
            let refused = range(wanted, None).fit(MIB, 0, 64 * MIB);
            assert_eq!(refused, Err(OutOfRange::TooLarge { wanted, max: 64 * MIB }));
        }
    }
}
