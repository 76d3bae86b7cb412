//! Leader election by a Lease.
//!
//! The protocol is client-go's, so that replicas of both programs can run at the same time: the
//! holder writes the Lease every retry period; other candidates wait until the Lease has not
//! changed for its duration by their own clock, since clocks of machines disagree; every write is
//! based on the version that was read.
//!
//! Three improvements are invisible to others. A standby watches the Lease instead of polling it,
//! so that it knows of a release or of the last renewal at once. A leader counts from the moment at
//! which it *sent* its last renewal, and stops before another replica can lead. And a leader that
//! sees another holder stops at once instead of retrying.

mod identity;
mod known;
#[cfg(test)]
mod tests;
mod timing;
mod watchdog;

use std::{
    collections::BTreeMap,
    future::Future,
    hash::{BuildHasher, RandomState},
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    ApiFailure,
    lease::{KubeLease, Lease, LeaseApi, LeaseClaim},
};
pub use identity::ReplicaIdentity;
pub use timing::{ElectionTiming, TimingError};
pub use watchdog::{ElectionHealth, ElectionMetrics};

use known::{Held, Renewal, Rival};
use watchdog::Watchdog;

/// Settings of an election.
#[derive(Clone, Debug)]
pub struct ElectionOptions {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name, which all replicas share.
    pub name: String,
    /// This replica's identity.
    pub identity: ReplicaIdentity,
    /// Labels that the Lease gets.
    pub labels: BTreeMap<String, String>,
    /// Lease duration, renew deadline and retry period.
    pub timing: ElectionTiming,
    /// Release the Lease at the end, so that the next leader need not wait for its expiry.
    pub release: bool,
}

/// How the work under a Lease ended, which decides whether the Lease is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended<T> {
    /// Normally: the Lease is released if [`ElectionOptions::release`] is set.
    Done(T),
    /// The replica cannot work any more: the Lease is released, so that another replica leads.
    Resigned(T),
    /// A call that began under the Lease may still be in progress: the Lease expires by itself.
    Unfinished(T),
}

impl<T> Ended<T> {
    /// The result of the work.
    pub fn into_inner(self) -> T {
        match self {
            Self::Done(value) | Self::Resigned(value) | Self::Unfinished(value) => value,
        }
    }
}

/// Another replica holds the Lease, or it could not be renewed in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Lease {lease} is lost: {reason}")]
pub struct LeaseLost {
    lease: String,
    reason: String,
}

/// A replica's part in an election.
pub struct Election<A = KubeLease> {
    api: A,
    options: ElectionOptions,
    claim: LeaseClaim,
    watchdog: Watchdog,
    /// The Lease's `acquireTime` when this replica last led: each change of the holder changes it.
    last: Mutex<Option<String>>,
}

/// The time during which a replica leads.
#[derive(Clone, Debug)]
pub struct Term {
    /// Cancelled when the work has to end.
    pub stop: CancellationToken,
    /// Whether this replica led before and no other has led since.
    pub resumed: bool,
    /// The moment until which no other replica can lead; each renewal moves it. A replica that was
    /// frozen sees here that it must not act, before its timers fire.
    pub held_until: watch::Receiver<Instant>,
}

impl Election {
    /// A candidate. Its client should be separate: renewals must not queue behind other requests.
    pub fn new(
        client: Client,
        options: ElectionOptions,
        health: ElectionHealth,
        metrics: &ElectionMetrics,
    ) -> Self {
        let api = KubeLease::new(client, &options.namespace, &options.name);
        Self::with_api(api, options, health, metrics)
    }
}

impl<A: LeaseApi> Election<A> {
    /// A candidate for a Lease behind any [`LeaseApi`].
    pub fn with_api(
        api: A,
        options: ElectionOptions,
        health: ElectionHealth,
        metrics: &ElectionMetrics,
    ) -> Self {
        let claim = LeaseClaim {
            identity: options.identity.as_str().to_owned(),
            seconds: options.timing.seconds(),
            labels: options.labels.clone(),
        };
        let watchdog = Watchdog::new(&options.name, options.timing, health, metrics);
        Self { api, options, claim, watchdog, last: Mutex::default() }
    }

    /// Waits for the Lease, and works while it is held.
    ///
    /// `work` gets a token that `stop` cancels; it may take its time then, because the Lease is
    /// held until it ends. If the Lease is lost the token is cancelled too, and `work` is dropped
    /// at the same moment.
    ///
    /// Returns the result of `work`, or `None` if `stop` came before this replica led. May be run
    /// again after a loss.
    pub async fn run<T, F>(
        &self,
        stop: &CancellationToken,
        work: impl FnOnce(Term) -> F,
    ) -> Result<Option<T>, LeaseLost>
    where
        F: Future<Output = Ended<T>>,
    {
        let outcome = match stop.run_until_cancelled(self.acquire()).await {
            Some(held) => {
                info!(lease = %self.options.name, identity = %self.options.identity, "became leader, starting");
                self.lead(held, stop, work).await.map(Some)
            }
            None => Ok(None),
        };
        let give_back = match &outcome {
            Ok(None | Some(Ended::Done(_))) => self.options.release,
            Ok(Some(Ended::Resigned(_))) => true,
            Ok(Some(Ended::Unfinished(_))) | Err(_) => false,
        };
        if give_back {
            self.release().await;
        }
        outcome.map(|ended| ended.map(Ended::into_inner))
    }

    async fn lead<T, F>(
        &self,
        held: Held,
        stop: &CancellationToken,
        work: impl FnOnce(Term) -> F,
    ) -> Result<T, LeaseLost>
    where
        F: Future<Output = T>,
    {
        let token = stop.child_token();
        let _cancelled_at_the_end = token.clone().drop_guard();
        let (until, held_until) = watch::channel(self.held_until(&held));
        let term = Term { stop: token.clone(), resumed: self.resumes(&held), held_until };
        let work = pin!(work(term));
        tokio::select! {
            biased;
            reason = self.keep(held, &until) => {
                token.cancel();
                Err(LeaseLost { lease: self.options.name.clone(), reason })
            }
            outcome = work => Ok(outcome),
        }
    }

    fn held_until(&self, held: &Held) -> Instant {
        held.renewed + self.options.timing.held()
    }

    /// Whether no other replica has led since this one did.
    fn resumes(&self, held: &Held) -> bool {
        let acquired = held.lease.spec()["acquireTime"].as_str().map(str::to_owned);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let resumed = acquired.is_some() && *last == acquired;
        *last = acquired;
        resumed
    }

    /// Tries to take the Lease until it is held.
    async fn acquire(&self) -> Held {
        let mut rival = None;
        let (mut can_watch, mut has_failed) = (true, false);
        loop {
            match self.within_attempt(self.attempt(&mut rival)).await {
                Ok(Some(held)) => return held,
                Ok(None) => has_failed = false,
                Err(error) => {
                    // An outage is logged once, however many attempts fail.
                    if !std::mem::replace(&mut has_failed, true) {
                        warn!(lease = %self.options.name, %error, "failed to take Lease, retrying");
                    }
                    sleep(self.after_error(&error)).await;
                    continue;
                }
            }
            match &mut rival {
                Some(rival) if can_watch => can_watch = self.watch(rival).await,
                Some(rival) => {
                    let look = Instant::now() + self.between_attempts();
                    sleep_until(look.min(rival.expiry())).await;
                }
                None => sleep(self.between_attempts()).await,
            }
        }
    }

    /// One attempt to take the Lease; `rival` is its holder as far as known. A Lease with our own
    /// name was left by this replica, or by a process that is dead: see [`ReplicaIdentity`].
    async fn attempt(&self, rival: &mut Option<Rival>) -> Result<Option<Held>, ApiFailure> {
        let Some(lease) = self.api.read().await? else {
            return self.create().await.map(Some);
        };
        let free = lease.holder().is_empty() || self.is_own(&lease);
        if !free {
            let seen = match rival.take() {
                Some(seen) => seen.seen_again(lease.clone()),
                None => Rival::new(lease.clone()),
            };
            let expired = seen.expiry() <= Instant::now();
            *rival = Some(seen);
            if !expired {
                return Ok(None);
            }
        }
        self.write(&lease).await.map(Some)
    }

    /// Watches the Lease until it may be free, or until the watch fails; `false` if the account may
    /// not watch.
    async fn watch(&self, rival: &mut Rival) -> bool {
        let mut versions = self.api.versions(rival.lease.version());
        loop {
            let version = tokio::select! {
                version = versions.next() => version,
                () = sleep_until(rival.expiry()) => return true,
            };
            match version {
                Some(Ok(Some(lease))) if lease.holder().is_empty() => return true,
                Some(Ok(Some(lease))) => rival.observe(lease),
                Some(Ok(None)) => return true,
                Some(Err(error)) => {
                    debug!(lease = %self.options.name, %error, "failed to watch Lease");
                    let look = Instant::now() + self.between_attempts();
                    sleep_until(look.min(rival.expiry())).await;
                    return error.may_pass();
                }
                // Watches end after some minutes.
                None => {
                    sleep(self.options.timing.after_failure()).await;
                    return true;
                }
            }
        }
    }

    /// Renews the Lease until that fails for good, and returns the reason.
    async fn keep(&self, mut held: Held, until: &watch::Sender<Instant>) -> String {
        let timing = self.options.timing;
        let term = self.watchdog.term();
        loop {
            term.renewed(held.renewed);
            until.send_replace(self.held_until(&held));
            sleep_until(held.renewed + timing.between_renewals()).await;
            let give_up = Instant::now() + timing.patience(held.renewed.elapsed());
            let renewing = timeout_at(give_up, async {
                loop {
                    match self.within_attempt(self.renew(&mut held)).await {
                        Ok(outcome) => break outcome,
                        Err(error) => {
                            warn!(lease = %self.options.name, %error, "failed to renew Lease, retrying");
                            sleep(timing.after_failure()).await;
                        }
                    }
                }
            });
            held = match renewing.await {
                Ok(Renewal::Renewed(held)) => held,
                Ok(Renewal::TakenBy(holder)) => return format!("{holder} holds it now"),
                Err(_) => {
                    return format!(
                        "not renewed for {:.1} s, and others may take it soon",
                        held.renewed.elapsed().as_secs_f64()
                    );
                }
            };
        }
    }

    /// One renewal, based on the version that was written last. The Lease is read again only after
    /// a conflict.
    async fn renew(&self, held: &mut Held) -> Result<Renewal, ApiFailure> {
        let lease = held.lease.clone();
        match self.write_again(held, &lease).await {
            Ok(held) => return Ok(Renewal::Renewed(held)),
            Err(error @ (ApiFailure::Conflict { .. } | ApiFailure::NotFound { .. })) => {
                debug!(lease = %self.options.name, %error, "reading Lease again");
            }
            Err(error) => return Err(error),
        }
        match self.api.read().await? {
            Some(lease) if self.is_own(&lease) && held.is_written(&lease) => {
                self.watchdog.slow_path();
                self.write_again(held, &lease).await.map(Renewal::Renewed)
            }
            Some(lease) if self.is_own(&lease) => {
                Ok(Renewal::TakenBy(format!("another process of the name {}", lease.holder())))
            }
            Some(lease) if !lease.holder().is_empty() => {
                Ok(Renewal::TakenBy(lease.holder().to_owned()))
            }
            Some(lease) => self.write_again(held, &lease).await.map(Renewal::Renewed),
            None => self.create().await.map(Renewal::Renewed),
        }
    }

    async fn create(&self) -> Result<Held, ApiFailure> {
        let ElectionOptions { namespace, name, .. } = &self.options;
        let renewed = Instant::now();
        let lease = self.claim.first(namespace, name, Timestamp::now());
        let lease = self.api.create(&lease).await?;
        Ok(Held { lease, renewed, unanswered: Vec::new() })
    }

    async fn write(&self, lease: &Lease) -> Result<Held, ApiFailure> {
        self.put(self.claim.on(lease, Timestamp::now())).await
    }

    /// Like the write, but remembered until one is answered: it may have happened although its
    /// answer was lost.
    async fn write_again(&self, held: &mut Held, lease: &Lease) -> Result<Held, ApiFailure> {
        let claimed = self.claim.on(lease, Timestamp::now());
        held.unanswered.push(claimed.renew_time().clone());
        self.put(claimed).await
    }

    async fn put(&self, claimed: Lease) -> Result<Held, ApiFailure> {
        let renewed = Instant::now();
        let lease = self.api.replace(&claimed).await?;
        Ok(Held { lease, renewed, unanswered: Vec::new() })
    }

    fn is_own(&self, lease: &Lease) -> bool {
        lease.holder() == self.options.identity.as_str()
    }

    /// Releases the Lease if it is ours, which is possible even without an answer that confirms it.
    async fn release(&self) {
        let releasing = async {
            match self.api.read().await? {
                Some(lease) if self.is_own(&lease) => {
                    self.api.replace(&lease.released(Timestamp::now())).await.map(drop)
                }
                _ => Ok(()),
            }
        };
        if let Err(error) = self.within_attempt(releasing).await {
            warn!(lease = %self.options.name, %error, "failed to release Lease: it expires by itself");
        }
    }

    async fn within_attempt<T>(
        &self,
        attempt: impl Future<Output = Result<T, ApiFailure>>,
    ) -> Result<T, ApiFailure> {
        let limit = self.options.timing.attempt();
        timeout(limit, attempt).await.unwrap_or_else(|_| {
            Err(ApiFailure::Unreachable {
                what: format!("Lease {}", self.options.name),
                message: format!("no answer within {limit:?}"),
            })
        })
    }

    /// The pause after a failed attempt. While the API server is unreachable no replica leads, so
    /// its return has to be noticed soon.
    fn after_error(&self, error: &ApiFailure) -> Duration {
        match error {
            ApiFailure::Unreachable { .. } => self.options.timing.after_failure(),
            _ => self.between_attempts(),
        }
    }

    fn between_attempts(&self) -> Duration {
        // Each hasher of the standard library has random keys: a spread needs no generator.
        let random = RandomState::new().hash_one(()) >> 11;
        self.options.timing.between_attempts(random as f64 / (1u64 << 53) as f64)
    }
}
