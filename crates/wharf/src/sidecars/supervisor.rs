//! Runs the controllers of a process: each while it holds its Lease, all until the driver's name,
//! capabilities or topology change.

use std::{pin::pin, sync::Arc, time::Duration};

use kube::Client;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info_span, warn};
use wharf_cluster::{
    Election, ElectionHealth, ElectionMetrics, Ended, Term, with_causes, writing_until,
};
use wharf_csi::Calls;
use wharf_sidecars::{Caches, not_served::Guard};

use super::{
    controller::{Cluster, Controller, Scope, Target, TargetSource},
    election::ElectionPlan,
    leading::Leading,
    process_health::ProcessHealth,
    runner::Lease,
};

/// Pause before a controller that panicked or failed is restarted. It doubles with each failure.
const FIRST_REST: Duration = Duration::from_secs(5);
const LONGEST_REST: Duration = Duration::from_mins(5);

/// Lists this recent are shared by controllers that start together.
const NEW: Duration = Duration::from_secs(10);

/// How long a leader that stops waits for its controller and for unanswered calls to the driver
/// before it releases its Lease. Pods have 30 s to end by default.
const LAST_CALLS: Duration = Duration::from_secs(20);

/// How long a controller may take to stop when its driver is disconnected: enough to mark claims
/// for the next leader.
const LAST_MARKS: Duration = Duration::from_secs(4);

/// How long controllers may take to stop when their driver has changed.
const GRACE: Duration = LAST_CALLS.saturating_add(Duration::from_secs(5));

/// All controllers of a process.
pub(super) struct Supervisor<S: TargetSource> {
    client: Client,
    source: S,
    slots: Vec<Arc<ControllerSlot<S::Target>>>,
    process_health: ProcessHealth<S::Target>,
}

/// A controller, and what it needs to run.
pub(super) struct ControllerSlot<T> {
    pub(super) name: &'static str,
    pub(super) client: Client,
    pub(super) controller: Arc<dyn Controller<T>>,
    pub(super) process_health: ProcessHealth<T>,
    /// `None` where there is one replica only.
    pub(super) candidacy: Option<Candidacy<T>>,
}

/// Takes part in the election for a Lease.
pub(super) struct Candidacy<T> {
    pub(super) client: Client,
    pub(super) plan: ElectionPlan,
    pub(super) lease: Lease<T>,
    pub(super) health: ElectionHealth,
    pub(super) metrics: ElectionMetrics,
}

/// Why the controllers ended.
pub(super) enum End<F> {
    Stopped,
    /// The driver came back with another name (and so another Lease), other capabilities or
    /// another topology.
    Changed(F),
}

impl<S: TargetSource> Supervisor<S> {
    pub(super) fn new(
        client: Client,
        source: S,
        slots: Vec<ControllerSlot<S::Target>>,
        process_health: ProcessHealth<S::Target>,
    ) -> Self {
        Self { client, source, slots: slots.into_iter().map(Arc::new).collect(), process_health }
    }

    /// Runs the controllers, as leaders or standbys, until `stop` or until the driver changes.
    ///
    /// The error of the only controller of a process ends the process, as upstream's programs do;
    /// one of several is restarted after a pause.
    pub(super) async fn work(
        &self,
        target: &S::Target,
        stop: &CancellationToken,
    ) -> anyhow::Result<End<S::Target>> {
        let stopping = stop.child_token();
        let scopes: Vec<Scope> = self.slots.iter().map(|slot| slot.controller.scope()).collect();
        let caches = Scope::caches(&scopes, S::driver(target));
        self.process_health.begin(target, Some(&caches));
        let alone = self.slots.len() == 1;
        let mut working = JoinSet::new();
        for slot in &self.slots {
            let (slot, target) = (Arc::clone(slot), target.clone());
            let (caches, stopping) = (caches.clone(), stopping.clone());
            let span = info_span!("controller", controller = slot.name);
            let work = async move { slot.work(&caches, &target, &stopping, alone).await };
            // The log of a single controller does not repeat its name in each line.
            match alone {
                true => working.spawn(work),
                false => working.spawn(work.instrument(span)),
            };
        }
        let watching = caches.run(&self.client, &stopping);
        let ended = async {
            while let Some(outcome) = working.join_next().await {
                outcome.unwrap_or_else(|panic| Err(panic.into()))?;
            }
            anyhow::Ok(())
        };
        let outcome = tokio::select! {
            outcome = ended => outcome.map(|()| End::Stopped),
            () = watching => Ok(End::Stopped),
            changed = self.source.changed(target) => {
                warn!("CSI driver changed, restarting all controllers");
                Ok(End::Changed(changed))
            }
        };
        stopping.cancel();
        // Controllers that do not stop in time are dropped.
        let _ = timeout(GRACE, working.join_all()).await;
        outcome
    }
}

impl<T: Target> ControllerSlot<T> {
    async fn work(
        &self,
        caches: &Caches,
        target: &T,
        stop: &CancellationToken,
        alone: bool,
    ) -> anyhow::Result<()> {
        let Some(candidacy) = &self.candidacy else {
            return self.supervise(self.cluster(caches), target, stop.clone(), alone).await;
        };
        let leading = Leading::default();
        tokio::select! {
            outcome = self.stand(candidacy, caches, target, stop, alone, &leading) => outcome,
            never = self.stand_by(candidacy, caches, target, stop, &leading) => never,
        }
    }

    /// Takes part in the election, and runs the controller while it leads.
    async fn stand(
        &self,
        candidacy: &Candidacy<T>,
        caches: &Caches,
        target: &T,
        stop: &CancellationToken,
        alone: bool,
        leading: &Leading,
    ) -> anyhow::Result<()> {
        let election = candidacy.election(target);
        let patience = candidacy.plan.lease_duration();
        let needs_driver = self.controller.needs_driver();
        let mut first = true;
        // A lost Lease ends the controller and not the process, which becomes a candidate again.
        loop {
            // A leader without its driver would keep replicas that have one from leading.
            if needs_driver && stop.run_until_cancelled(target.present()).await.is_none() {
                return Ok(());
            }
            let work = |term: Term| async move {
                let _leading = leading.begin();
                match (term.resumed, first) {
                    (true, _) => caches.renew_unless_alive(NEW),
                    (false, true) => caches.renew(NEW),
                    (false, false) => caches.renew(Duration::ZERO),
                }
                let absent = async {
                    match needs_driver {
                        true => target.absent_for(patience).await,
                        false => std::future::pending().await,
                    }
                };
                self.lead(caches, target, term, alone, candidacy.plan.releases(), absent).await
            };
            match election.run(stop, work).await {
                Ok(None) => return Ok(()),
                Ok(Some(Some(outcome))) => return outcome,
                Ok(Some(None)) => {
                    warn!(duration = ?patience, "CSI driver does not answer, released the Lease");
                }
                Err(lost) => error!(error = %lost, "stopped leading"),
            }
            first = false;
        }
    }

    /// Does the work of a standby whenever this replica has not led for a lease duration: by then
    /// another replica leads, or none does.
    async fn stand_by(
        &self,
        candidacy: &Candidacy<T>,
        caches: &Caches,
        target: &T,
        stop: &CancellationToken,
        leading: &Leading,
    ) -> anyhow::Result<()> {
        while !stop.is_cancelled() {
            let begin = || {
                let stopping = stop.clone();
                let work = self.controller.stand_by(
                    self.cluster(caches),
                    target.clone(),
                    stopping.clone(),
                );
                async move {
                    match work {
                        Some(work) => work.await,
                        None => stopping.cancelled().await,
                    }
                    Ok(())
                }
            };
            let work = async {
                sleep(candidacy.plan.lease_duration()).await;
                supervise(self.name, &self.process_health, stop, false, begin).await
            };
            tokio::select! {
                outcome = work => outcome?,
                () = leading.is(true) => leading.is(false).await,
            }
        }
        // `stand` returns the outcome.
        std::future::pending().await
    }

    fn cluster(&self, caches: &Caches) -> Cluster {
        Cluster {
            client: self.client.clone(),
            caches: caches.clone(),
            permissions: self.process_health.permissions.clone(),
            writes_until: None,
        }
    }

    /// The cluster for a leader: its client sends writes only before the moment in `until`.
    fn led_cluster(&self, caches: &Caches, until: watch::Receiver<Instant>) -> Cluster {
        let client = writing_until(&self.client, until.clone());
        Cluster { client, writes_until: Some(until), ..self.cluster(caches) }
    }

    /// Runs the controller until the term ends, or until `absent` completes, which gives `None`.
    async fn lead(
        &self,
        caches: &Caches,
        target: &T,
        Term { stop, held_until, .. }: Term,
        alone: bool,
        release: bool,
        absent: impl Future<Output = ()>,
    ) -> Ended<Option<anyhow::Result<()>>> {
        let cluster = self.led_cluster(caches, held_until.clone());
        let calls = Calls::only_until(held_until.clone());
        // Calls must not outlive the Lease: neither if it is lost, when this future is dropped, nor
        // if it is released.
        let _cut = calls.cut_on_drop();
        let target = target.with_calls(calls.clone());
        let stopping = stop.child_token();
        let mut end = pin!(async {
            stop.cancelled().await;
            sleep(LAST_CALLS).await;
        });
        let mut work = pin!(self.supervise(cluster, &target, stopping.clone(), alone));
        let outcome = tokio::select! {
            outcome = &mut work => outcome,
            () = absent => {
                stopping.cancel();
                // A driver that does not answer may still work on calls. Wait for them until the
                // Lease would expire if this replica were gone.
                let expiry = (*held_until.borrow()).min(Instant::now() + LAST_CALLS);
                let _ = timeout(LAST_MARKS, &mut work).await;
                if timeout_at(expiry, no_call_under_way(&calls, &target)).await.is_err() {
                    warn!("releasing the Lease although the CSI driver may work on a call");
                }
                return Ended::Resigned(None);
            }
            () = &mut end => {
                warn!(duration = ?LAST_CALLS, "controller did not stop in time, leaving the Lease to expire");
                return Ended::Unfinished(Some(Ok(())));
            }
        };
        if !release {
            return Ended::Done(Some(outcome));
        }
        // The time that the controller took to stop counts towards the limit.
        let late = async {
            tokio::select! {
                () = end => {}
                () = sleep(LAST_CALLS) => {}
            }
        };
        tokio::select! {
            () = no_call_under_way(&calls, &target) => Ended::Done(Some(outcome)),
            () = late => {
                warn!(duration = ?LAST_CALLS, "CSI driver still works on a call, leaving the Lease to expire");
                Ended::Unfinished(Some(outcome))
            }
        }
    }

    /// Runs the controller on this cluster, and restarts it after a failure.
    async fn supervise(
        &self,
        cluster: Cluster,
        target: &T,
        stop: CancellationToken,
        alone: bool,
    ) -> anyhow::Result<()> {
        let begin = || {
            let (cluster, controller) = (cluster.clone(), Arc::clone(&self.controller));
            let (target, stopping) = (target.clone(), stop.clone());
            let guard = Guard::new(
                self.name,
                target.driver_name(),
                controller.gaps(),
                cluster.client.clone(),
                cluster.caches.clone(),
                self.process_health.unserved.clone(),
            );
            async move {
                tokio::select! {
                    outcome = controller.run(cluster, target, stopping.clone()) => outcome,
                    never = guard.run(stopping.clone()) => match never {},
                }
            }
        };
        supervise(self.name, &self.process_health, &stop, alone, begin).await
    }
}

/// Waits until the driver has answered every call, or is disconnected.
async fn no_call_under_way(calls: &Calls, target: &impl Target) {
    tokio::select! {
        () = calls.finished() => {}
        () = target.disconnected() => {}
    }
}

/// Runs a controller until `stop`, and restarts it after a pause if it panicked or failed. One that
/// is `alone` in its process ends with its error instead. Dropping the future ends the controller.
pub(super) async fn supervise<T: Target, F>(
    name: &'static str,
    process_health: &ProcessHealth<T>,
    stop: &CancellationToken,
    alone: bool,
    mut begin: impl FnMut() -> F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut rest = FIRST_REST;
    loop {
        let began = Instant::now();
        let mut task = JoinSet::new();
        task.spawn(begin().in_current_span());
        process_health.works(name);
        let failure = match task.join_next().await {
            Some(Err(panic)) => {
                error!(error = %panic, "controller panicked, restarting");
                panic.to_string()
            }
            Some(Ok(Err(failure))) if !alone => {
                let failure = with_causes(failure.as_ref());
                error!(error = %failure, again_in = ?rest, "controller failed, restarting");
                failure
            }
            Some(Ok(outcome)) => return outcome,
            None => return Ok(()),
        };
        process_health.failed(name, failure);
        if began.elapsed() > LONGEST_REST {
            rest = FIRST_REST;
        }
        if stop.run_until_cancelled(sleep(rest)).await.is_none() {
            return Ok(());
        }
        rest = (rest * 2).min(LONGEST_REST);
    }
}

impl<T> Candidacy<T> {
    fn election(&self, target: &T) -> Election {
        let options = self.plan.options((self.lease)(target));
        Election::new(self.client.clone(), options, self.health.clone(), &self.metrics)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anyhow::bail;
    use async_trait::async_trait;
    use prometheus_client::registry::Registry;

    use super::{super::controller::ClusterSource, *};

    /// Panics or fails the first time, and works from then on.
    struct Shaky {
        panics: bool,
        begun: AtomicUsize,
    }

    #[async_trait]
    impl Controller<()> for Shaky {
        async fn run(&self, _: Cluster, (): (), stop: CancellationToken) -> anyhow::Result<()> {
            if self.begun.fetch_add(1, Ordering::SeqCst) > 0 {
                stop.cancelled().await;
                return Ok(());
            }
            assert!(!self.panics, "the first time");
            bail!("the first time");
        }
    }

    /// Ends the process once it was begun, and another was begun twice.
    struct Steady {
        other: Arc<Shaky>,
        begun: AtomicUsize,
        end: CancellationToken,
    }

    #[async_trait]
    impl Controller<()> for Steady {
        async fn run(&self, _: Cluster, (): (), stop: CancellationToken) -> anyhow::Result<()> {
            self.begun.fetch_add(1, Ordering::SeqCst);
            while self.other.begun.load(Ordering::SeqCst) < 2 {
                sleep(FIRST_REST).await;
            }
            self.end.cancel();
            stop.cancelled().await;
            Ok(())
        }
    }

    fn supervisor(controllers: Vec<Arc<dyn Controller<()>>>) -> Supervisor<ClusterSource> {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client: Client = config.try_into().unwrap();
        let process_health = ProcessHealth::register(&mut Registry::default(), &["some"]);
        let slot = |controller| ControllerSlot {
            name: "some",
            client: client.clone(),
            controller,
            process_health: process_health.clone(),
            candidacy: None,
        };
        let slots = controllers.into_iter().map(slot).collect();
        Supervisor::new(client.clone(), ClusterSource, slots, process_health.clone())
    }

    fn shaky(panics: bool) -> Arc<Shaky> {
        Arc::new(Shaky { panics, begun: AtomicUsize::new(0) })
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_panics_or_fails_is_begun_again_and_others_go_on() {
        for panics in [true, false] {
            let (end, other) = (CancellationToken::new(), shaky(panics));
            let steady = Arc::new(Steady {
                other: other.clone(),
                begun: AtomicUsize::new(0),
                end: end.clone(),
            });
            let supervisor = supervisor(vec![other.clone(), steady.clone()]);
            assert!(matches!(supervisor.work(&(), &end).await.unwrap(), End::Stopped));
            assert_eq!(other.begun.load(Ordering::SeqCst), 2);
            assert_eq!(steady.begun.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_alone_ends_the_process_with_its_error() {
        let supervisor = supervisor(vec![shaky(false)]);
        let ended = supervisor.work(&(), &CancellationToken::new()).await;
        assert_eq!(ended.err().unwrap().to_string(), "the first time");
    }
}
