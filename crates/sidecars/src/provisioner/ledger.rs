//! The state of claims between attempts. Volumes that the driver may be creating are kept for as
//! long as the process lives, whether it leads or not: see `carried`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;
use tonic::Code;
use wharf_cluster::{PersistentVolumeClaim, StorageClass};

use super::{note::Note, plan::Plan, state::is_settling, topology::Memory};

/// The claims that have state, by their UID. Most are here for the time of one call.
#[derive(Default)]
pub(super) struct Ledger(Mutex<HashMap<String, Entry>>);

#[derive(Default)]
struct Entry {
    begun: Option<Begun>,
    /// CreateVolume was called more than once: an earlier call had no final answer.
    repeated: bool,
    /// The claim has the mark, so that any later leader finds the volume.
    marked: bool,
    /// The request is from an earlier term.
    carried: bool,
    /// The claim is gone, so that only this process knows of the volume.
    claim_gone: bool,
    slow: Option<Slow>,
    memory: Memory,
    /// The last attempt found no segment for the volume, or is about to search for one.
    lacks_place: bool,
}

/// A volume that the driver may be creating, or has created. It is finished even if the claim is
/// deleted: otherwise it would never be deleted.
#[derive(Clone)]
pub(super) struct Begun {
    /// The claim at the time of the request.
    pub(super) claim: Arc<PersistentVolumeClaim>,
    pub(super) stage: Stage,
}

/// The progress of a volume.
#[derive(Clone)]
pub(super) enum Stage {
    /// The driver may be working on it.
    Asked(Asked),
    /// An attempt that began then has created it, and only API writes are missing.
    Made { asked: Asked, object: Arc<Value>, began: Instant },
}

/// A CreateVolume request, to be repeated unchanged when the claim is gone, with the plan that it
/// was built from.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) class: Arc<StorageClass>,
    pub(super) plan: Arc<Plan>,
}

/// The driver reported that no retry can help.
struct Slow {
    until: Instant,
    /// The class of the request; another class may help.
    class: String,
}

impl Ledger {
    pub(super) fn begun(&self, uid: &str) -> Option<Begun> {
        self.entries().get(uid)?.begun.clone()
    }

    /// The request, if the driver may be working on it.
    pub(super) fn asked(&self, uid: &str) -> Option<Asked> {
        match self.begun(uid)?.stage {
            Stage::Asked(asked) => Some(asked),
            Stage::Made { .. } => None,
        }
    }

    /// Begins a term as leader, or a time in which another replica leads. Keeps volumes that only
    /// this process knows of. For the others the claim's mark is authoritative: other leaders may
    /// have changed it meanwhile. For the same reason a created volume counts as requested: the
    /// driver is asked again.
    pub(super) fn begin_term(&self) {
        self.entries().retain(|_, entry| {
            entry.slow = None;
            entry.lacks_place = false;
            // The claim is searched for again.
            entry.claim_gone = false;
            entry.carried = entry.begun.is_some();
            if let Some(begun) = &mut entry.begun
                && let Stage::Made { asked, .. } = &begun.stage
            {
                begun.stage = Stage::Asked(asked.clone());
            }
            entry.begun.is_some() && !entry.marked
        });
    }

    /// The claims without a mark whose volumes the driver may be creating.
    pub(super) fn unmarked(&self) -> Vec<Arc<PersistentVolumeClaim>> {
        let entries = self.entries();
        let unmarked = entries.values().filter(|entry| !entry.marked);
        unmarked.filter_map(|entry| Some(Arc::clone(&entry.begun.as_ref()?.claim))).collect()
    }

    /// Whether the driver may be creating the volume of a claim without a mark.
    pub(super) fn is_unmarked(&self, uid: &str) -> bool {
        self.entries().get(uid).is_some_and(|entry| entry.begun.is_some() && !entry.marked)
    }

    /// Whether a claim is known to be gone.
    pub(super) fn is_gone(&self, uid: &str) -> bool {
        self.entries().get(uid).is_some_and(|entry| entry.claim_gone)
    }

    /// Records that the claim has the mark.
    pub(super) fn note_mark(&self, uid: &str) {
        self.change(uid, |entry| entry.marked = true);
    }

    /// Records that the claim is gone.
    pub(super) fn note_gone(&self, uid: &str) {
        self.change(uid, |entry| entry.claim_gone = true);
    }

    /// The number of volumes that the driver may have, and that only this process knows of.
    pub(super) fn orphans(&self) -> usize {
        let is_orphan = |entry: &&Entry| {
            entry.begun.is_some() && !entry.marked && (entry.carried || entry.claim_gone)
        };
        self.entries().values().filter(is_orphan).count()
    }

    /// The note of the last request to the driver of this name.
    pub(super) fn note(&self, uid: &str, driver: &str) -> Option<Note> {
        let asked = match self.begun(uid)?.stage {
            Stage::Asked(asked) | Stage::Made { asked, .. } => asked,
        };
        Some(Note::of(driver, &asked.class, &asked.plan, self.memory(uid)))
    }

    /// Whether a volume was requested for such a claim.
    pub(super) fn is_begun(&self, is_meant: impl Fn(&PersistentVolumeClaim) -> bool) -> bool {
        let entries = self.entries();
        entries.values().filter_map(|entry| entry.begun.as_ref()).any(|it| is_meant(&it.claim))
    }

    pub(super) fn begin(&self, begun: Begun) {
        let uid = begun.claim.metadata.uid.clone();
        let mut entries = self.entries();
        let entry = entries.entry(uid).or_default();
        entry.repeated = entry.begun.is_some();
        entry.begun = Some(begun);
    }

    /// Whether an answer with this code ends the requests of a claim. If an earlier call had no
    /// final answer, the driver has to report the state of the volume. Without a code the driver
    /// was not called, and no request ends.
    pub(super) fn is_ended_by(&self, uid: &str, code: Option<Code>) -> bool {
        match (self.entries().get(uid), code) {
            (Some(Entry { begun: Some(_), .. }), None) => false,
            (Some(Entry { begun: Some(_), repeated: true, .. }), Some(code)) => is_settling(code),
            _ => true,
        }
    }

    /// Records that the driver is not working on it any more.
    pub(super) fn end(&self, uid: &str) {
        self.change(uid, |entry| {
            entry.begun = None;
            entry.repeated = false;
            entry.marked = false;
            entry.carried = false;
            entry.claim_gone = false;
        });
    }

    /// Delays the next attempt, unless the class changes.
    pub(super) fn slow_down(&self, uid: &str, class: &str, pause: Duration) {
        let slow = Slow { until: Instant::now() + pause, class: class.to_owned() };
        self.entries().entry(uid.to_owned()).or_default().slow = Some(slow);
    }

    /// How long the next attempt has to wait.
    pub(super) fn pause(&self, uid: &str, class: &str) -> Option<Duration> {
        let entries = self.entries();
        let slow = entries.get(uid)?.slow.as_ref().filter(|slow| slow.class == class)?;
        let left = slow.until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Lets `attempt` use and change the topology of earlier requests, and records whether it
    /// fails. Until it returns it counts as failed: a CSINode that changes while the attempt reads
    /// CSINodes queues the claim again.
    pub(super) fn find_place<T, E>(
        &self,
        uid: &str,
        attempt: impl FnOnce(&mut Memory) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut memory = {
            let mut entries = self.entries();
            let entry = entries.entry(uid.to_owned()).or_default();
            entry.lacks_place = true;
            entry.memory.clone()
        };
        let outcome = attempt(&mut memory);
        let mut entries = self.entries();
        let entry = entries.entry(uid.to_owned()).or_default();
        entry.memory = memory;
        entry.lacks_place = outcome.is_err();
        outcome
    }

    /// Whether a claim waits for a segment: one more topology key may help it.
    pub(super) fn lacks_place(&self, uid: &str) -> bool {
        self.entries().get(uid).is_some_and(|entry| entry.lacks_place)
    }

    /// The topology of the last request.
    pub(super) fn memory(&self, uid: &str) -> Memory {
        self.entries().get(uid).map(|entry| entry.memory.clone()).unwrap_or_default()
    }

    /// Takes over the topology of a request from an earlier term, unless this term has a newer one.
    pub(super) fn recall(&self, uid: &str, memory: Memory) {
        let mut entries = self.entries();
        let entry = entries.entry(uid.to_owned()).or_default();
        if entry.memory == Memory::default() {
            entry.memory = memory;
        }
    }

    pub(super) fn forget_memory(&self, uid: &str) {
        self.change(uid, |entry| entry.memory = Memory::default());
    }

    /// All state.
    pub(super) fn forget(&self, uid: &str) {
        self.entries().remove(uid);
    }

    fn change(&self, uid: &str, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries().get_mut(uid) {
            change(entry);
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The requested volume of the claim with this UID.
    fn made(uid: &str) -> Begun {
        let claim = serde_json::from_value(json!({ "metadata": { "uid": uid } })).unwrap();
        let asked = Asked { class: Arc::default(), plan: Arc::default() };
        let stage = Stage::Made { asked, object: Arc::default(), began: Instant::now() };
        Begun { claim: Arc::new(claim), stage }
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_cannot_be_served_rests_until_its_class_is_another() {
        let ledger = Ledger::default();
        assert_eq!(ledger.pause("u", "c1"), None);
        ledger.slow_down("u", "c1", Duration::from_mins(5));
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(ledger.pause("u", "c1"), Some(Duration::from_mins(4)));
        assert_eq!(ledger.pause("u", "c2"), None);
        tokio::time::advance(Duration::from_mins(4)).await;
        assert_eq!(ledger.pause("u", "c1"), None);
    }

    #[test]
    fn a_claim_waits_for_a_place_until_one_is_found() {
        let ledger = Ledger::default();
        assert!(!ledger.lacks_place("u"));
        let looks = |found: Result<(), ()>| {
            let outcome = ledger.find_place("u", |_| {
                assert!(ledger.lacks_place("u"));
                found
            });
            assert_eq!(outcome, found);
            ledger.lacks_place("u")
        };
        assert!(looks(Err(())));
        assert!(!looks(Ok(())));
    }

    #[test]
    fn what_was_begun_is_kept_until_it_ends() {
        let ledger = Ledger::default();
        ledger.begin(made("u"));
        assert!(ledger.begun("u").is_some());
        ledger.end("u");
        assert!(ledger.begun("u").is_none());
        ledger.forget("u");
        assert!(ledger.entries().is_empty());
    }

    #[test]
    fn what_was_begun_ends_with_an_answer_that_says_how_it_stands() {
        let ledger = Ledger::default();
        let (denied, failed) = (Some(Code::PermissionDenied), Some(Code::Internal));
        assert!(ledger.is_ended_by("u", None), "nothing was requested");
        ledger.begin(made("u"));
        assert!(ledger.is_ended_by("u", denied), "a first answer is final");
        assert!(!ledger.is_ended_by("u", None), "the driver was not called");
        ledger.begin(made("u"));
        assert!(!ledger.is_ended_by("u", denied) && !ledger.is_ended_by("u", None));
        assert!(ledger.is_ended_by("u", failed));
        ledger.begin_term();
        assert!(!ledger.is_ended_by("u", denied), "forgotten in another term");
        ledger.end("u");
        ledger.begin(made("u"));
        assert!(ledger.is_ended_by("u", denied));
    }

    #[test]
    fn what_only_this_process_knows_outlasts_its_term() {
        let ledger = Ledger::default();
        for uid in ["marked", "ended", "unmarked"] {
            ledger.begin(made(uid));
        }
        ledger.note_mark("marked");
        ledger.end("ended");
        ledger.begin_term();
        assert!(ledger.begun("marked").is_none() && ledger.begun("ended").is_none());
        // Another leader may have deleted the created volume.
        assert!(ledger.asked("unmarked").is_some());
        let unmarked = ledger.unmarked();
        assert_eq!(
            unmarked.iter().map(|it| it.metadata.uid.as_str()).collect::<Vec<_>>(),
            ["unmarked"]
        );
        assert_eq!(ledger.orphans(), 1);
        ledger.note_gone("unmarked");
        assert!(ledger.is_gone("unmarked"));
        ledger.begin(made("new"));
        assert_eq!(ledger.orphans(), 1);
        ledger.forget("unmarked");
        assert_eq!(ledger.orphans(), 0);
        ledger.note_gone("new");
        assert_eq!(ledger.orphans(), 1);
    }
}
