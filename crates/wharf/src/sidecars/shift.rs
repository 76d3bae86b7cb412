//! Controllers at work: each whenever it is its turn, all of them for as long as the driver stays what it was.

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
    controller::{Cluster, Controller, Scope, Served, Source},
    election::ElectionPlan,
    eyes::Eyes,
    leading::Leading,
    shell::Lease,
};

/// How long a controller that panicked or failed rests before it is begun again, longer each time.
const FIRST_REST: Duration = Duration::from_secs(5);
const LONGEST_REST: Duration = Duration::from_mins(5);

/// What controllers that begin together have listed so short a time ago need not be listed for each of them.
const NEW: Duration = Duration::from_secs(10);

/// How long a leader that is told to end waits for its controller and for calls that its driver has not answered, before it gives
/// its Lease back. Pods have 30 s to end by default.
const LAST_CALLS: Duration = Duration::from_secs(20);

/// How long a controller may take to stop when its driver is gone: enough to mark claims for the next leader.
const LAST_MARKS: Duration = Duration::from_secs(4);

/// How long controllers may take to stop when their driver has changed.
const GRACE: Duration = LAST_CALLS.saturating_add(Duration::from_secs(5));

/// All controllers of a process.
pub(super) struct Shift<S: Source> {
    client: Client,
    source: S,
    posts: Vec<Arc<Post<S::Found>>>,
    eyes: Eyes<S::Found>,
}

/// A controller, and what it needs to work whenever it is its turn.
pub(super) struct Post<For> {
    pub(super) name: &'static str,
    pub(super) client: Client,
    pub(super) controller: Arc<dyn Controller<For>>,
    pub(super) eyes: Eyes<For>,
    /// `None` where there is one replica only.
    pub(super) candidacy: Option<Candidacy<For>>,
}

/// A stand in the election for a Lease.
pub(super) struct Candidacy<For> {
    pub(super) client: Client,
    pub(super) plan: ElectionPlan,
    pub(super) lease: Lease<For>,
    pub(super) health: ElectionHealth,
    pub(super) metrics: ElectionMetrics,
}

/// Why work ended.
pub(super) enum End<F> {
    Stopped,
    /// The driver has another name, and so another Lease, or other capabilities.
    Changed(F),
}

impl<S: Source> Shift<S> {
    pub(super) fn new(
        client: Client,
        source: S,
        posts: Vec<Post<S::Found>>,
        eyes: Eyes<S::Found>,
    ) -> Self {
        Self { client, source, posts: posts.into_iter().map(Arc::new).collect(), eyes }
    }

    /// Works, or stands by, until it is told to stop or the driver has become another one.
    ///
    /// One that works alone ends with an error of its own, as whoever started the process expects; where there are
    /// others, it rests and begins again.
    pub(super) async fn work(
        &self,
        found: &S::Found,
        stop: &CancellationToken,
    ) -> anyhow::Result<End<S::Found>> {
        let told = stop.child_token();
        let scopes: Vec<Scope> = self.posts.iter().map(|post| post.controller.scope()).collect();
        let caches = Scope::caches(&scopes, S::driver(found));
        self.eyes.begin(found, Some(&caches));
        let alone = self.posts.len() == 1;
        let mut working = JoinSet::new();
        for post in &self.posts {
            let (post, found) = (Arc::clone(post), found.clone());
            let (caches, told) = (caches.clone(), told.clone());
            let span = info_span!("controller", controller = post.name);
            let work = async move { post.work(&caches, &found, &told, alone).await };
            // A name beside each line would only be in the way of one that is alone.
            match alone {
                true => working.spawn(work),
                false => working.spawn(work.instrument(span)),
            };
        }
        let watching = caches.run(&self.client, &told);
        let ended = async {
            while let Some(outcome) = working.join_next().await {
                outcome.unwrap_or_else(|panic| Err(panic.into()))?;
            }
            anyhow::Ok(())
        };
        let outcome = tokio::select! {
            outcome = ended => outcome.map(|()| End::Stopped),
            () = watching => Ok(End::Stopped),
            changed = self.source.changed(found) => {
                warn!("beginning again with the driver as it is now");
                Ok(End::Changed(changed))
            }
        };
        told.cancel();
        // What does not end in time is cut by being dropped.
        let _ = timeout(GRACE, working.join_all()).await;
        outcome
    }
}

impl<For: Served> Post<For> {
    async fn work(
        &self,
        caches: &Caches,
        found: &For,
        stop: &CancellationToken,
        alone: bool,
    ) -> anyhow::Result<()> {
        let Some(candidacy) = &self.candidacy else {
            return self.supervise(self.cluster(caches), found, stop.clone(), alone).await;
        };
        let leading = Leading::default();
        tokio::select! {
            outcome = self.stand(candidacy, caches, found, stop, alone, &leading) => outcome,
            never = self.stand_by(candidacy, caches, found, stop, &leading) => never,
        }
    }

    /// Stands for election, and works whenever it leads.
    async fn stand(
        &self,
        candidacy: &Candidacy<For>,
        caches: &Caches,
        found: &For,
        stop: &CancellationToken,
        alone: bool,
        leading: &Leading,
    ) -> anyhow::Result<()> {
        let election = candidacy.election(found);
        let patience = candidacy.plan.lease_duration();
        let needs_driver = self.controller.needs_driver();
        let mut first = true;
        // A lost Lease ends the work and not the process: it stands again.
        loop {
            // A leader without its driver would keep everybody from working.
            if needs_driver && stop.run_until_cancelled(found.present()).await.is_none() {
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
                        true => found.absent_for(patience).await,
                        false => std::future::pending().await,
                    }
                };
                self.lead(caches, found, term, alone, candidacy.plan.releases(), absent).await
            };
            match election.run(stop, work).await {
                Ok(None) => return Ok(()),
                Ok(Some(Some(outcome))) => return outcome,
                Ok(Some(None)) => {
                    warn!(absent_for = ?patience, "gave the Lease back: the CSI driver is gone or does not answer, and another replica may have one");
                }
                Err(lost) => error!(error = %lost, "stopped leading"),
            }
            first = false;
        }
    }

    /// Does the work of a standby whenever this replica has not led for a lease duration: by then another leads, or none.
    async fn stand_by(
        &self,
        candidacy: &Candidacy<For>,
        caches: &Caches,
        found: &For,
        stop: &CancellationToken,
        leading: &Leading,
    ) -> anyhow::Result<()> {
        while !stop.is_cancelled() {
            let begin = || {
                let told = stop.clone();
                let work =
                    self.controller.stand_by(self.cluster(caches), found.clone(), told.clone());
                async move {
                    match work {
                        Some(work) => work.await,
                        None => told.cancelled().await,
                    }
                    Ok(())
                }
            };
            let work = async {
                sleep(candidacy.plan.lease_duration()).await;
                supervise(self.name, &self.eyes, stop, false, begin).await
            };
            tokio::select! {
                outcome = work => outcome?,
                () = leading.is(true) => leading.is(false).await,
            }
        }
        // Whoever stands for election says how that ended.
        std::future::pending().await
    }

    fn cluster(&self, caches: &Caches) -> Cluster {
        Cluster {
            client: self.client.clone(),
            caches: caches.clone(),
            permissions: self.eyes.permissions.clone(),
            writes_until: None,
        }
    }

    /// The cluster as a leader sees it, whose writes are sent before this moment only.
    fn led_cluster(&self, caches: &Caches, until: watch::Receiver<Instant>) -> Cluster {
        let client = writing_until(&self.client, until.clone());
        Cluster { client, writes_until: Some(until), ..self.cluster(caches) }
    }

    /// Works until told to stop, or until the driver is `absent`, which gives `None`.
    async fn lead(
        &self,
        caches: &Caches,
        found: &For,
        Term { stop, held_until, .. }: Term,
        alone: bool,
        release: bool,
        absent: impl Future<Output = ()>,
    ) -> Ended<Option<anyhow::Result<()>>> {
        let cluster = self.led_cluster(caches, held_until.clone());
        let calls = Calls::only_until(held_until.clone());
        // Calls must not outlive the Lease: neither if it is lost, when all of this is dropped, nor if it is given back.
        let _cut = calls.cut_on_drop();
        let found = found.with_calls(calls.clone());
        let told = stop.child_token();
        let mut end = pin!(async {
            stop.cancelled().await;
            sleep(LAST_CALLS).await;
        });
        let mut work = pin!(self.supervise(cluster, &found, told.clone(), alone));
        let outcome = tokio::select! {
            outcome = &mut work => outcome,
            () = absent => {
                told.cancel();
                // A driver that does not answer may still work on calls. They are waited for as long as the Lease would last if this
                // replica were gone.
                let expiry = (*held_until.borrow()).min(Instant::now() + LAST_CALLS);
                let _ = timeout(LAST_MARKS, &mut work).await;
                if timeout_at(expiry, no_call_under_way(&calls, &found)).await.is_err() {
                    warn!("gives the Lease back although the CSI driver may still work on a call");
                }
                return Ended::Resigned(None);
            }
            () = &mut end => {
                warn!(waited = ?LAST_CALLS, "the controller did not stop in time: the Lease is not given back and expires by itself");
                return Ended::Unfinished(Some(Ok(())));
            }
        };
        if !release {
            return Ended::Done(Some(outcome));
        }
        // The time that the controller took to stop counts.
        let late = async {
            tokio::select! {
                () = end => {}
                () = sleep(LAST_CALLS) => {}
            }
        };
        tokio::select! {
            () = no_call_under_way(&calls, &found) => Ended::Done(Some(outcome)),
            () = late => {
                warn!(waited = ?LAST_CALLS, "the CSI driver still works on a call: the Lease is not given back and expires by itself");
                Ended::Unfinished(Some(outcome))
            }
        }
    }

    /// Has the controller work on this cluster.
    async fn supervise(
        &self,
        cluster: Cluster,
        found: &For,
        stop: CancellationToken,
        alone: bool,
    ) -> anyhow::Result<()> {
        let begin = || {
            let (cluster, controller) = (cluster.clone(), Arc::clone(&self.controller));
            let (found, told) = (found.clone(), stop.clone());
            let guard = Guard::new(
                self.name,
                found.driver_name(),
                controller.gaps(),
                cluster.client.clone(),
                cluster.caches.clone(),
                self.eyes.unserved.clone(),
            );
            async move {
                tokio::select! {
                    outcome = controller.run(cluster, found, told.clone()) => outcome,
                    never = guard.run(told.clone()) => match never {},
                }
            }
        };
        supervise(self.name, &self.eyes, &stop, alone, begin).await
    }
}

/// Waits until the driver works on no call.
async fn no_call_under_way(calls: &Calls, found: &impl Served) {
    tokio::select! {
        () = calls.finished() => {}
        () = found.disconnected() => {}
    }
}

/// Runs work until it is told to stop, again after a pause if it panicked or failed. Work that is `alone` in its process ends
/// with its error instead. Dropping this ends the work, too.
pub(super) async fn supervise<For: Served, F>(
    name: &'static str,
    eyes: &Eyes<For>,
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
        eyes.works(name);
        let failure = match task.join_next().await {
            Some(Err(panic)) => {
                error!(error = %panic, "the controller panicked, beginning again");
                panic.to_string()
            }
            Some(Ok(Err(failure))) if !alone => {
                let failure = with_causes(failure.as_ref());
                error!(error = %failure, again_in = ?rest, "the controller failed");
                failure
            }
            Some(Ok(outcome)) => return outcome,
            None => return Ok(()),
        };
        eyes.failed(name, failure);
        if began.elapsed() > LONGEST_REST {
            rest = FIRST_REST;
        }
        if stop.run_until_cancelled(sleep(rest)).await.is_none() {
            return Ok(());
        }
        rest = (rest * 2).min(LONGEST_REST);
    }
}

impl<For> Candidacy<For> {
    fn election(&self, found: &For) -> Election {
        let options = self.plan.options((self.lease)(found));
        Election::new(self.client.clone(), options, self.health.clone(), &self.metrics)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anyhow::bail;
    use async_trait::async_trait;
    use prometheus_client::registry::Registry;

    use super::{super::controller::WholeCluster, *};

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

    fn shift(controllers: Vec<Arc<dyn Controller<()>>>) -> Shift<WholeCluster> {
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client: Client = config.try_into().unwrap();
        let eyes = Eyes::register(&mut Registry::default(), &["some"]);
        let post = |controller| Post {
            name: "some",
            client: client.clone(),
            controller,
            eyes: eyes.clone(),
            candidacy: None,
        };
        let posts = controllers.into_iter().map(post).collect();
        Shift::new(client.clone(), WholeCluster, posts, eyes.clone())
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
            let shift = shift(vec![other.clone(), steady.clone()]);
            assert!(matches!(shift.work(&(), &end).await.unwrap(), End::Stopped));
            assert_eq!(other.begun.load(Ordering::SeqCst), 2);
            assert_eq!(steady.begun.load(Ordering::SeqCst), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_alone_ends_the_process_with_its_error() {
        let shift = shift(vec![shaky(false)]);
        let ended = shift.work(&(), &CancellationToken::new()).await;
        assert_eq!(ended.err().unwrap().to_string(), "the first time");
    }
}
