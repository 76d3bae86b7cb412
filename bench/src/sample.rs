//! Durations of repeated measurements.

use std::time::Duration;

/// The measured durations.
#[derive(Debug, Default)]
pub(crate) struct Sample(Vec<Duration>);

impl Sample {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// The median, in milliseconds.
    pub(crate) fn p50(&self) -> f64 {
        self.percentile(50)
    }

    /// The 99th percentile, in milliseconds.
    pub(crate) fn p99(&self) -> f64 {
        self.percentile(99)
    }

    /// By nearest rank, so always a measured value. NaN without values.
    fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }
}

/// The median; NaN without values.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let Some(last) = figures.len().checked_sub(1) else { return f64::NAN };
    f64::midpoint(figures[last / 2], figures[last.div_ceil(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 9.0]), 3.0);
        assert!(median([]).is_nan());
    }

    #[test]
    fn percentiles_are_measured_values() {
        let of = |count: u64| Sample((1..=count).rev().map(Duration::from_millis).collect());
        assert_eq!((of(200).p50(), of(200).p99()), (100.0, 198.0));
        assert_eq!((of(3).p50(), of(3).p99()), (2.0, 3.0));
        assert_eq!(of(1).p50(), 1.0);
        assert!(of(0).p99().is_nan());
    }
}
