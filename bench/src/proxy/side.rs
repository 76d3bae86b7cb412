//! A connection to the runtime, measured together with others.

use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;

use super::client::Client;
use crate::sample::{Sample, median};

/// A call that is repeated on one connection.
pub(super) struct Side {
    pub(super) client: Client,
    pub(super) method: &'static str,
    pub(super) message: Bytes,
    pub(super) rounds: Vec<Sample>,
}

impl Side {
    pub(super) fn new(client: Client, method: &'static str, message: Bytes) -> Self {
        Self { client, method, message, rounds: Vec::new() }
    }

    /// Calls `count` times.
    pub(super) async fn round(&mut self, count: usize) -> Result<()> {
        let mut sample = Sample::default();
        for _ in 0..count {
            let begun = Instant::now();
            self.client.call(self.method, &self.message).await?;
            sample.add(begun.elapsed());
        }
        self.rounds.push(sample);
        Ok(())
    }

    /// The median of the rounds' medians, in microseconds.
    pub(super) fn p50(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.p50() * 1e3))
    }

    /// The median of the rounds' p99, in microseconds.
    pub(super) fn p99(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.p99() * 1e3))
    }

    /// The median of `figure` over the rounds of this side and the same rounds of `other`.
    pub(super) fn beside(&self, other: &Self, figure: impl Fn(&Sample, &Sample) -> f64) -> f64 {
        let rounds = self.rounds.iter().zip(&other.rounds);
        median(rounds.map(|(own, other)| figure(own, other)))
    }

    /// How much longer the median call takes than on the `other` side, in microseconds.
    pub(super) fn added(&self, other: &Self) -> f64 {
        self.beside(other, |own, other| (own.p50() - other.p50()) * 1e3)
    }
}

/// Warms all sides up, and calls alternately, in a changing order: each call depends on the state
/// in which the previous side left the processors.
pub(super) async fn take_turns(sides: &mut [&mut Side], rounds: usize, calls: usize) -> Result<()> {
    for side in &mut *sides {
        side.round(calls.div_ceil(5)).await?;
        side.rounds.clear();
    }
    for _ in 0..rounds {
        for side in &mut *sides {
            side.round(calls).await?;
        }
        sides.rotate_left(1);
    }
    Ok(())
}
