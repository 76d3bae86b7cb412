//! The pause between attempts on a local socket.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(10);

/// The longest pause.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// Pauses of 10 ms, doubling up to [`LONGEST`].
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// The same, with a first pause of zero.
    pub(crate) fn at_once() -> Self {
        Self { next: Duration::ZERO }
    }

    pub(crate) async fn pause(&mut self) {
        let pause = self.advance();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }

    fn advance(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).clamp(FIRST, LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_a_second() {
        let mut backoff = Backoff::at_once();
        let pauses: Vec<u128> = (0..10).map(|_| backoff.advance().as_millis()).collect();
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(Backoff::new().advance(), FIRST);
    }
}
