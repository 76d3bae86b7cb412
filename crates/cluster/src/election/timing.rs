use std::time::Duration;

/// Waits between two attempts to take the Lease vary by this factor of the retry period, as in
/// client-go.
const JITTER: f64 = 1.2;

/// Calls in progress when work is stopped get this long before another replica leads.
const MARGIN: Duration = Duration::from_secs(1);

/// The three times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionTiming {
    lease: Duration,
    renew: Duration,
    retry: Duration,
}

/// Why times are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// Leases are written in whole seconds.
    #[error("the lease duration ({0:?}) must be at least 1s")]
    ShortLease(Duration),
    /// A leader would still retry while another replica leads.
    #[error("the lease duration ({lease:?}) must be longer than the renew deadline ({renew:?})")]
    LeaseWithinDeadline {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        renew: Duration,
    },
    /// There would be no second attempt within the deadline.
    #[error(
        "the renew deadline ({renew:?}) must be longer than 1.2 times the retry period ({retry:?})"
    )]
    DeadlineWithinRetry {
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
    },
    /// Retries would not pause.
    #[error("the retry period must be longer than 0s")]
    NoRetryPeriod,
}

impl Default for ElectionTiming {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { lease: seconds(15), renew: seconds(10), retry: seconds(5) }
    }
}

impl ElectionTiming {
    /// How long a silent leader is believed to live.
    pub fn lease_duration(&self) -> Duration {
        self.lease
    }

    /// Times by client-go's rules: lease > renew > 1.2 * retry.
    pub fn new(lease: Duration, renew: Duration, retry: Duration) -> Result<Self, TimingError> {
        if lease < Duration::from_secs(1) {
            return Err(TimingError::ShortLease(lease));
        }
        if lease <= renew {
            return Err(TimingError::LeaseWithinDeadline { lease, renew });
        }
        if renew <= retry.mul_f64(JITTER) {
            return Err(TimingError::DeadlineWithinRetry { renew, retry });
        }
        if retry.is_zero() {
            return Err(TimingError::NoRetryPeriod);
        }
        Ok(Self { lease, renew, retry })
    }

    /// The lease duration in whole seconds, as written to the Lease.
    pub(super) fn seconds(&self) -> u32 {
        u32::try_from(self.lease.as_secs()).unwrap_or(u32::MAX)
    }

    /// How long a leader waits between renewals.
    pub(super) fn between_renewals(&self) -> Duration {
        self.retry
    }

    /// How long a leader waits after a failed renewal.
    pub(super) fn after_failure(&self) -> Duration {
        self.retry / 5
    }

    /// How long a replica waits before it reads the Lease again; `random` is between 0 and 1.
    pub(super) fn between_attempts(&self, random: f64) -> Duration {
        self.retry.mul_f64(1.0 + JITTER * random)
    }

    /// Limit for one attempt.
    pub(super) fn attempt(&self) -> Duration {
        self.renew / 2
    }

    /// How long a leader whose renewal is due now, and which last renewed `ago`, retries before it
    /// gives up.
    pub(super) fn patience(&self, ago: Duration) -> Duration {
        self.renew.min(self.held().saturating_sub(ago))
    }

    /// How long after a renewal a leader may begin calls: a margin is left before another can lead.
    pub(super) fn held(&self) -> Duration {
        let written = Duration::from_secs(self.lease.as_secs());
        written - MARGIN.min(written / 10)
    }

    /// How old a leader's last renewal may be before it counts as stuck.
    pub(super) fn tolerated(&self, expired_by: Duration) -> Duration {
        self.lease + expired_by
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_rules_of_client_go() {
        let of = |lease, renew, retry| {
            let time = Duration::from_millis;
            ElectionTiming::new(time(lease), time(renew), time(retry)).map(drop)
        };
        assert_eq!(of(15_000, 10_000, 5_000), Ok(()));
        assert_eq!(of(137_000, 107_000, 26_000), Ok(()));
        for (times, text) in [
            ((900, 500, 100), "the lease duration (900ms) must be at least 1s"),
            (
                (10_000, 10_000, 2_000),
                "the lease duration (10s) must be longer than the renew deadline (10s)",
            ),
            (
                (15_000, 6_000, 5_000),
                "the renew deadline (6s) must be longer than 1.2 times the retry period (5s)",
            ),
            ((15_000, 10_000, 0), "the retry period must be longer than 0s"),
        ] {
            let (lease, renew, retry) = times;
            assert_eq!(of(lease, renew, retry).unwrap_err().to_string(), text);
        }
        let default = ElectionTiming::default();
        assert_eq!(ElectionTiming::new(default.lease, default.renew, default.retry), Ok(default));
    }

    #[test]
    fn a_leader_has_given_up_before_the_lease_can_be_taken() {
        let timing = ElectionTiming::default();
        for ago in [0, 5, 9, 14, 20].map(Duration::from_secs) {
            let patience = timing.patience(ago);
            assert!(patience <= timing.renew, "{ago:?}");
            assert!(patience.is_zero() || ago + patience <= Duration::from_secs(14), "{ago:?}");
        }
        assert_eq!(timing.patience(Duration::from_secs(5)), Duration::from_secs(9));
    }

    #[test]
    fn attempts_are_spread_over_client_go_s_range() {
        let timing = ElectionTiming::default();
        assert_eq!(timing.between_attempts(0.0), Duration::from_secs(5));
        assert_eq!(timing.between_attempts(1.0), Duration::from_secs(11));
    }
}
