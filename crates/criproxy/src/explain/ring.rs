//! The last records, within bounds.

use std::{collections::VecDeque, sync::Arc};

use jiff::Timestamp;
use tonic::Code;
use wharf_uds::code_name;

use super::{
    decision::{Body, CallEnd, Decision, ServerDecision},
    find::Miss,
};
use crate::{HookPoint, identity::Identity, intercept::Method};

/// As many dry runs of one record are kept.
const DRY_RUNS: usize = 16;
/// What the allocator and the ring itself take for each record, more or less.
const OVERHEAD: usize = 128;

/// A record that is to be kept.
pub(crate) struct Record {
    at: Timestamp,
    hook: HookPoint,
    identity: Identity,
    body: Vec<u8>,
}

impl Record {
    /// A record of now.
    pub(crate) fn new(hook: HookPoint, identity: Identity, body: &Body) -> Self {
        Self::begun(Timestamp::now(), hook, identity, body)
    }

    /// A record of something that began then.
    pub(crate) fn begun(at: Timestamp, hook: HookPoint, identity: Identity, body: &Body) -> Self {
        let body = serde_json::to_vec(body).expect("texts and numbers can be encoded");
        Self { at, hook, identity, body }
    }
}

/// The ids that the runtime gave to what it made.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) pod: Option<String>,
    /// Those of containers, with their names; without, of the only container.
    pub(crate) containers: Vec<(Option<String>, String)>,
}

/// The method of a call, its code, and the microseconds that it took.
type End = (Method, Code, u64);

/// A record at rest.
struct Entry {
    at: Timestamp,
    hook: HookPoint,
    identity: Identity,
    call: Option<End>,
    body: Arc<[u8]>,
    dry_runs: Vec<Arc<[u8]>>,
}

impl Entry {
    fn bytes(&self) -> usize {
        let dry_runs: usize = self.dry_runs.iter().map(|it| it.len() + OVERHEAD / 4).sum();
        size_of::<Self>() + OVERHEAD + self.identity.heap_bytes() + self.body.len() + dry_runs
    }
}

/// A record that was selected, still encoded.
pub(super) struct Kept {
    at: Timestamp,
    hook: HookPoint,
    identity: Identity,
    call: Option<End>,
    body: Arc<[u8]>,
    dry_runs: Vec<Arc<[u8]>>,
}

impl Kept {
    pub(super) fn decode(self) -> Decision {
        const OURS: &str = "a record is our own encoding";
        let mut body: Body = serde_json::from_slice(&self.body).expect(OURS);
        let dry_runs = self.dry_runs.iter();
        let dry_runs = dry_runs.map(|it| serde_json::from_slice::<ServerDecision>(it).expect(OURS));
        body.servers.extend(dry_runs);
        let call = self.call.map(|(method, code, took_us)| CallEnd {
            method: format!("{method:?}"),
            code: code_name(code).to_owned(),
            took_us,
        });
        let (time, hook) = (time(self.at), self.hook.name().to_owned());
        Decision { time, hook, identity: self.identity, call, body }
    }
}

/// The last records.
pub(super) struct Ring {
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    bytes: usize,
    most: usize,
    most_bytes: usize,
    /// When the ring began, or the first record that is kept.
    since: Timestamp,
}

impl Ring {
    /// An empty one. It allocates nothing.
    pub(super) fn new(most: usize, most_bytes: usize, since: Timestamp) -> Self {
        Self { entries: VecDeque::new(), first: 0, bytes: 0, most, most_bytes, since }
    }

    /// Keeps a record, for as long as there is room, and gives its number.
    pub(super) fn push(&mut self, record: Record) -> u64 {
        let Record { at, hook, identity, body } = record;
        let body = body.into();
        let entry = Entry { at, hook, identity, call: None, body, dry_runs: Vec::new() };
        let number = self.first + self.entries.len() as u64;
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        self.make_room();
        number
    }

    /// Adds a dry run to a record.
    pub(super) fn add(&mut self, number: u64, decision: &ServerDecision) {
        let decision = serde_json::to_vec(decision).expect("texts and numbers can be encoded");
        self.change(number, |entry| {
            if entry.dry_runs.len() < DRY_RUNS {
                entry.dry_runs.push(decision.into());
            }
        });
    }

    /// Adds the end of its call to a record.
    pub(super) fn end(&mut self, number: u64, end: End, made: &Made) {
        self.change(number, |entry| {
            entry.call = Some(end);
            entry.identity.add(made);
        });
    }

    pub(super) fn identities(&self) -> impl Iterator<Item = &Identity> + Clone {
        self.entries.iter().map(|entry| &entry.identity)
    }

    /// The records of some identities, oldest first.
    pub(super) fn select(&self, wanted: impl Fn(&Identity) -> bool) -> Vec<Kept> {
        let wanted = self.entries.iter().filter(|entry| wanted(&entry.identity));
        wanted
            .map(|entry| Kept {
                at: entry.at,
                hook: entry.hook,
                identity: entry.identity.clone(),
                call: entry.call,
                body: entry.body.clone(),
                dry_runs: entry.dry_runs.clone(),
            })
            .collect()
    }

    /// The time from which on all records are kept.
    pub(super) fn since(&self) -> String {
        time(self.since)
    }

    /// The sentence for somebody who looks for what is not kept.
    pub(super) fn explain_miss(&self, miss: &Miss) -> String {
        let Miss::Unknown(name) = miss else { return miss.to_string() };
        let (since, kept) = (self.since(), self.len());
        let (most, mib) = (self.most, self.most_bytes >> 20);
        format!(
            "no hook call about {name:?} is kept: the proxy keeps the last {most} hook calls and at most {mib} MiB of \
             them, and has {kept} since {since}. Expected a container's id or name, a pod's sandbox id or name, \
             namespace/pod or namespace/pod/container. A call that no hook server is asked about leaves nothing here; \
             `wharf proxy status` shows which servers are asked"
        )
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes, counted again.
    #[cfg(test)]
    pub(super) fn counted(&self) -> usize {
        self.entries.iter().map(Entry::bytes).sum()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    fn change(&mut self, number: u64, change: impl FnOnce(&mut Entry)) {
        let index = number.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) else { return };
        self.bytes -= entry.bytes();
        change(entry);
        self.bytes += entry.bytes();
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.entries.len() > self.most || self.bytes > self.most_bytes {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.first += 1;
            self.bytes -= oldest.bytes();
            self.since = self.entries.front().map_or_else(Timestamp::now, |entry| entry.at);
        }
    }
}

/// A time for people, in UTC.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
