//! Pauses between attempts, spread so that clients of a server that comes back do not all connect
//! at once.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(800);
/// The longest pause for a server that answers: it may be overloaded.
pub(super) const LONGEST: Duration = Duration::from_secs(30);
/// The longest pause for a server that does not answer: attempts cost it nothing, and its return
/// has to be noticed soon.
pub(super) const OUTAGE: Duration = Duration::from_secs(1);

/// Pauses that double from 0.8 s to a given maximum, each with a random spread. The first of a
/// series is zero: most watches end normally.
#[derive(Default)]
pub(super) struct Pause {
    next: Duration,
}

impl Pause {
    pub(super) fn reset(&mut self) {
        self.next = Duration::ZERO;
    }

    pub(super) async fn wait(&mut self, longest: Duration) {
        let pause = self.advance().min(longest);
        if !pause.is_zero() {
            tokio::time::sleep(spread(pause)).await;
        }
    }

    fn advance(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).clamp(FIRST, LONGEST);
        pause
    }
}

/// A random duration between `least` and twice that.
pub(super) fn spread(least: Duration) -> Duration {
    // Each state has random keys, drawn by the standard library.
    let random = RandomState::new().hash_one(()) as u32;
    least + least.mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let mut pause = Pause::default();
        let seconds: Vec<f64> = (0..8).map(|_| pause.advance().as_secs_f64()).collect();
        assert_eq!(seconds, [0.0, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]);
        pause.reset();
        assert_eq!(pause.advance(), Duration::ZERO);
    }

    #[test]
    fn spread_durations_are_between_once_and_twice() {
        let spread: Vec<Duration> = (0..50).map(|_| spread(FIRST)).collect();
        assert!(spread.iter().all(|it| (FIRST..=FIRST * 2).contains(it)), "{spread:?}");
        assert!(spread.iter().any(|it| *it != spread[0]), "{spread:?}");
    }
}
