//! The waits between failures of one key.

use std::time::Duration;

/// Exponential back-off: the first wait, doubled with each further failure up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// No wait is longer than this.
    pub max: Duration,
}

impl Backoff {
    /// The kubelet's values for plugins and volumes: 0.5 s, doubled up to 2 min 2 s.
    pub const KUBELET: Self =
        Self { first: Duration::from_millis(500), max: Duration::from_secs(122) };

    /// The wait after the `failures`-th failure in a row, counted from 1.
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelet_doubles_from_half_a_second_to_two_minutes_two() {
        let waits: Vec<f64> =
            (1..=10).map(|failures| Backoff::KUBELET.delay(failures).as_secs_f64()).collect();
        assert_eq!(waits, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0]);
    }

    #[test]
    fn any_number_of_failures_stays_at_the_limit() {
        for failures in [31, 32, 33, 34, 64, u32::MAX] {
            assert_eq!(Backoff::KUBELET.delay(failures), Backoff::KUBELET.max, "{failures}");
        }
    }
}
