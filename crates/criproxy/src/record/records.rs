//! All records of a proxy.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};

use super::{Container, Pod};

/// The records, by id. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Records(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    /// Each id is there once, whoever names it.
    pub(super) pods: HashMap<Arc<str>, Arc<Pod>>,
    pub(super) containers: HashMap<Arc<str>, Arc<Container>>,
    /// The containers of each pod.
    pub(super) members: HashMap<Arc<str>, Vec<Arc<str>>>,
    /// The servers that know of the end of a pod or container of which others have yet to be told.
    pub(super) notified: HashMap<Box<str>, BTreeSet<String>>,
    rebuilds: usize,
    /// What was removed while a rebuild is at work.
    removed: HashSet<Box<str>>,
    /// Pods and containers that ended unseen, until servers are notified.
    vanished: Vec<Vanished>,
    /// What calls have changed, while a successor wants to know.
    pub(super) changed: Option<BTreeSet<Box<str>>>,
}

/// A pod or container that the runtime no longer has and whose end was not reported to servers.
pub(crate) struct Vanished {
    pub(crate) id: Arc<str>,
    pub(crate) pod: Arc<Pod>,
    /// The container, unless it is about the pod.
    pub(crate) container: Option<Arc<Container>>,
    /// The servers that know already.
    pub(crate) notified: BTreeSet<String>,
}

impl Records {
    pub(crate) fn pod(&self, id: &str) -> Option<Arc<Pod>> {
        self.state().pods.get(id).cloned()
    }

    pub(crate) fn container(&self, id: &str) -> Option<Arc<Container>> {
        self.state().containers.get(id).cloned()
    }

    /// The containers of a pod, by id, in the order in which they came.
    pub(crate) fn containers_of(&self, pod: &str) -> Vec<(Arc<str>, Arc<Container>)> {
        let state = self.state();
        let ids = state.members.get(pod).into_iter().flatten();
        ids.filter_map(|id| Some((id.clone(), state.containers.get(id)?.clone()))).collect()
    }

    /// Records a pod that was made, in place of what was known of it.
    pub(crate) fn commit_pod(&self, id: &str, pod: Pod) {
        let mut state = self.state();
        state.removed.remove(id);
        state.note_change(id);
        let id = state.pod_id(id);
        state.pods.insert(id, pod.into());
    }

    /// Records a container that was made, in place of what was known of it; unless its pod was
    /// forgotten meanwhile, with which it went.
    pub(crate) fn commit_container(&self, container: Container) {
        let mut state = self.state();
        if !state.pods.contains_key(container.pod()) {
            return;
        }
        state.removed.remove(&*container.id);
        state.note_change(&container.id);
        state.insert(container);
    }

    /// Records a container whatever is known of its pod, which may follow.
    pub(super) fn put_container(&self, container: Container) {
        let mut state = self.state();
        state.removed.remove(&*container.id);
        state.note_change(&container.id);
        state.insert(container);
    }

    /// The id of the pod of a container, by the container's id or the beginning of it.
    pub(crate) fn pod_of(&self, id: &str) -> Option<String> {
        let state = self.state();
        let whole = only(&state.containers, id);
        let container = state.containers.get(whole.as_deref().unwrap_or(id))?;
        Some(container.pod().to_owned())
    }

    /// The ids of the containers of a pod that there are, by the pod's id or the beginning of it.
    pub(crate) fn members_of(&self, id: &str) -> Vec<String> {
        let state = self.state();
        let whole = only(&state.pods, id);
        let members = state.members.get(whole.as_deref().unwrap_or(id));
        members.into_iter().flatten().map(|id| id.as_ref().to_owned()).collect()
    }

    /// Records what became of a pod, unless it was forgotten meanwhile. The change is made to the
    /// record that there is now: others may have changed it since the caller read it.
    pub(crate) fn update_pod(&self, id: &str, change: impl FnOnce(&Pod) -> Pod) {
        let mut state = self.state();
        state.note_change(id);
        if let Some(known) = state.pods.get_mut(id) {
            *known = change(known).into();
        }
    }

    /// Records what became of a container, likewise.
    pub(crate) fn update_container(&self, id: &str, change: impl FnOnce(&Container) -> Container) {
        let mut state = self.state();
        state.note_change(id);
        if let Some(known) = state.containers.get_mut(id) {
            *known = change(known).into();
        }
    }

    /// The servers that were notified of the end of a pod or container, while others were not.
    pub(crate) fn notified(&self, id: &str) -> BTreeSet<String> {
        self.state().notified_of(id)
    }

    /// Records which servers were notified of an end, while others were not.
    pub(crate) fn set_notified(&self, id: &str, servers: BTreeSet<String>) {
        let mut state = self.state();
        let known = state.pods.contains_key(id) || state.containers.contains_key(id);
        if known && !servers.is_empty() {
            state.note_change(id);
            state.notified.insert(id.into(), servers);
        }
    }

    /// The post-stop hook of a pod is done.
    pub(crate) fn stop_pod(&self, id: &str) {
        self.state().notified.remove(id);
        self.update_pod(id, Pod::stopped);
    }

    /// The post-stop hook of a container is done.
    pub(crate) fn stop_container(&self, id: &str) {
        self.state().notified.remove(id);
        self.update_container(id, Container::stopped);
    }

    /// Forgets a pod, and its containers: they go with it.
    pub(crate) fn remove_pod(&self, id: &str) {
        let mut state = self.state();
        state.pods.remove(id);
        state.note_removal(id);
        for member in state.members.remove(id).unwrap_or_default() {
            state.containers.remove(&member);
            state.note_removal(&member);
        }
    }

    /// Forgets a container.
    pub(crate) fn remove_container(&self, id: &str) {
        let mut state = self.state();
        state.note_removal(id);
        if let Some(container) = state.containers.remove(id) {
            state.leave(id, container.pod());
        }
    }

    /// Forgets the pod of this id, or of this beginning of one, which is all that some callers
    /// give.
    pub(crate) fn forget_pod(&self, id: &str) {
        let whole = only(&self.state().pods, id);
        self.remove_pod(whole.as_deref().unwrap_or(id));
    }

    /// Forgets the container of this id, or of this beginning of one.
    pub(crate) fn forget_container(&self, id: &str) {
        let whole = only(&self.state().containers, id);
        self.remove_container(whole.as_deref().unwrap_or(id));
    }

    /// The ids of all pods and containers.
    pub(crate) fn ids(&self) -> HashSet<Arc<str>> {
        let state = self.state();
        state.pods.keys().chain(state.containers.keys()).cloned().collect()
    }

    /// Forgets pods and containers that ended unseen, and keeps those whose end was not reported to
    /// hook servers until they are [taken](Records::take_vanished).
    pub(crate) fn vanish(&self, ids: &HashSet<Arc<str>>) {
        let mut state = self.state();
        let vanished = state.vanished_among(ids);
        state.vanished.extend(vanished);
        drop(state);
        for id in ids {
            self.remove_container(id);
            self.remove_pod(id);
        }
    }

    /// What ended unseen since this was asked last: containers first, then pods.
    pub(crate) fn take_vanished(&self) -> Vec<Vanished> {
        std::mem::take(&mut self.state().vanished)
    }

    /// Begins to add what the runtime tells, beside the calls that go on meanwhile. Those know
    /// better: what they recorded stays, and what they removed does not come back.
    pub(crate) fn rebuild(&self) -> Rebuild {
        self.state().rebuilds += 1;
        Rebuild(self.clone())
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one id that begins like this, which a runtime takes for the whole.
fn only<T>(known: &HashMap<Arc<str>, T>, beginning: &str) -> Option<Arc<str>> {
    if beginning.is_empty() || known.contains_key(beginning) {
        return None;
    }
    let mut found = known.keys().filter(|id| id.starts_with(beginning));
    let first = found.next().cloned();
    first.filter(|_| found.next().is_none())
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Records")
            .field("pods", &state.pods.len())
            .field("containers", &state.containers.len())
            .finish()
    }
}

impl State {
    fn insert(&mut self, mut container: Container) -> Arc<Container> {
        let id = container.id.clone();
        container.pod = self.pod_id(&container.pod);
        let container = Arc::new(container);
        let known = self.containers.insert(id.clone(), container.clone());
        match known {
            Some(known) if known.pod() == container.pod() => return container,
            Some(known) => self.leave(&id, known.pod()),
            None => {}
        }
        self.members.entry(container.pod.clone()).or_default().push(id);
        container
    }

    fn vanished_among(&self, ids: &HashSet<Arc<str>>) -> Vec<Vanished> {
        let notified = |id: &Arc<str>| self.notified.get(&**id).cloned().unwrap_or_default();
        let containers = self.containers.iter().filter_map(|(id, container)| {
            let is_gone = ids.contains(id) || ids.contains(container.pod());
            let pod = self.pods.get(container.pod())?.clone();
            let vanished = || Vanished {
                id: id.clone(),
                pod,
                container: Some(container.clone()),
                notified: notified(id),
            };
            (is_gone && !container.is_stopped()).then(vanished)
        });
        let pods = self.pods.iter().filter(|(id, pod)| ids.contains(*id) && !pod.is_stopped());
        let pods = pods.map(|(id, pod)| Vanished {
            id: id.clone(),
            pod: pod.clone(),
            container: None,
            notified: notified(id),
        });
        containers.chain(pods).collect()
    }

    /// A pod's id, shared with those who have it already.
    fn pod_id(&self, id: &str) -> Arc<str> {
        let of_pod = self.pods.get_key_value(id).map(|(id, _)| id);
        let of_members = || self.members.get_key_value(id).map(|(id, _)| id);
        of_pod.or_else(of_members).cloned().unwrap_or_else(|| id.into())
    }

    /// Takes a container out of its pod's list.
    fn leave(&mut self, id: &str, pod: &str) {
        if let Some(members) = self.members.get_mut(pod) {
            members.retain(|member| **member != *id);
            if members.is_empty() {
                self.members.remove(pod);
            }
        }
    }

    fn note_change(&mut self, id: &str) {
        if let Some(changed) = &mut self.changed {
            changed.insert(id.into());
        }
    }

    /// The servers that know of the end of a pod or container.
    pub(super) fn notified_of(&self, id: &str) -> BTreeSet<String> {
        self.notified.get(id).cloned().unwrap_or_default()
    }

    fn note_removal(&mut self, id: &str) {
        self.note_change(id);
        self.notified.remove(id);
        if self.rebuilds > 0 {
            self.removed.insert(id.into());
        }
    }
}

/// A rebuild at work, until it is dropped.
pub(crate) struct Rebuild(Records);

impl Rebuild {
    /// Adds a pod unless there is one, and returns the one that there is; `None` if it was removed
    /// since the rebuild began.
    pub(crate) fn pod(&self, id: &str, pod: Pod) -> Option<Arc<Pod>> {
        let mut state = self.0.state();
        if state.removed.contains(id) {
            return None;
        }
        let id = state.pod_id(id);
        Some(state.pods.entry(id).or_insert_with(|| pod.into()).clone())
    }

    /// Adds a container unless there is one, and returns the one that there is; `None` if it or its
    /// pod was removed since the rebuild began.
    pub(crate) fn container(&self, container: Container) -> Option<Arc<Container>> {
        let mut state = self.0.state();
        if let Some(known) = state.containers.get(&container.id) {
            return Some(known.clone());
        }
        let removed = |id: &str| state.removed.contains(id);
        let gone = removed(&container.id) || removed(container.pod());
        (!gone).then(|| state.insert(container))
    }
}

impl Drop for Rebuild {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.rebuilds -= 1;
        if state.rebuilds == 0 {
            state.removed = HashSet::new();
        }
    }
}

/// How many records there are, at the time of asking.
#[derive(Debug)]
pub(crate) struct RecordCounts(pub(crate) Records);

impl Collector for RecordCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = {
            let state = self.0.state();
            [("pod", state.pods.len()), ("container", state.containers.len())]
        };
        let gauge = |count: usize| ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        let mut family = encoder.encode_descriptor(
            "wharf_proxy_records",
            "Pods and containers whose state hook servers can get",
            None,
            gauge(0).metric_type(),
        )?;
        for (kind, count) in counts {
            gauge(count).encode(family.encode_family(&[("kind", kind)])?)?;
        }
        Ok(())
    }
}
