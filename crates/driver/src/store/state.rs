//! The state in memory.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use redb::TableDefinition;
use serde::{Serialize, de::DeserializeOwned};

use super::totals::{Owed, Totals};
use crate::record::{Group, Node, Snapshot, Volume};

/// All records of a pool.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Volumes in any phase.
    pub volumes: Table<Volume>,
    /// Snapshots in any phase.
    pub snapshots: Table<Snapshot>,
    /// Groups of snapshots.
    pub groups: Table<Group>,
    /// Nodes that volumes can be published to.
    pub nodes: Table<Node>,
    totals: Totals,
}

/// Records by ID, with an index by name.
#[derive(Clone, Debug)]
pub struct Table<R> {
    rows: BTreeMap<String, Arc<R>>,
    ids: HashMap<String, String>,
}

/// A type of record, with its tables.
pub trait Record: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Table in the file.
    const FILE: TableDefinition<'static, &'static str, &'static [u8]>;

    /// Primary key.
    fn id(&self) -> &str;
    /// Secondary key.
    fn name(&self) -> &str;
    /// Table in memory.
    fn table(state: &State) -> &Table<Self>;
    /// Table in memory.
    fn table_mut(state: &mut State) -> &mut Table<Self>;
    /// Part in the pool's account, if the record takes space.
    fn owed(&self) -> Option<Owed<'_>>;
}

impl State {
    /// Whether there are no records. A pool that was ever served has the record of its node.
    pub fn is_blank(&self) -> bool {
        self.ids().next().is_none() && self.nodes.is_empty()
    }

    /// Returns the IDs of all volumes, snapshots and groups.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let volumes = self.volumes.iter().map(|row| row.id.as_str());
        let snapshots = self.snapshots.iter().map(|row| row.id.as_str());
        volumes.chain(snapshots).chain(self.groups.iter().map(|row| row.id.as_str()))
    }

    /// Sums of the account over all records.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Adds or replaces a record.
    #[cfg(test)]
    pub(crate) fn put<R: Record>(&mut self, row: R) {
        let id = row.id().to_owned();
        self.set(&id, Some(Arc::new(row)));
    }

    /// Replaces or removes the record with this ID. Returns the old one.
    pub(super) fn set<R: Record>(&mut self, id: &str, row: Option<Arc<R>>) -> Option<Arc<R>> {
        if let Some(owed) = row.as_deref().and_then(R::owed) {
            self.totals.add(owed);
        }
        let old = R::table_mut(self).set(id, row);
        if let Some(owed) = old.as_deref().and_then(R::owed) {
            self.totals.subtract(owed);
        }
        old
    }
}

impl<R> Default for Table<R> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), ids: HashMap::new() }
    }
}

impl<R> Table<R> {
    /// Returns the record with this ID.
    pub fn get(&self, id: &str) -> Option<&Arc<R>> {
        self.rows.get(id)
    }

    /// Returns the record with this name.
    pub fn named(&self, name: &str) -> Option<&Arc<R>> {
        self.rows.get(self.ids.get(name)?)
    }

    /// Returns all records, sorted by ID.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<R>> {
        self.rows.values()
    }

    /// Returns the records with an ID greater than `id`, sorted.
    pub fn after(&self, id: Option<&str>) -> impl Iterator<Item = &Arc<R>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = id.map_or(Unbounded, Excluded);
        self.rows.range::<str, _>((from, Unbounded)).map(|(_, row)| row)
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl<R: Record> Table<R> {
    fn set(&mut self, id: &str, row: Option<Arc<R>>) -> Option<Arc<R>> {
        if let Some(row) = &row {
            self.ids.insert(row.name().to_owned(), id.to_owned());
        }
        let renamed = |old: &Arc<R>| row.as_ref().is_none_or(|row| row.name() != old.name());
        if let Some(old) = self.rows.get(id).filter(|old| renamed(old)) {
            self.ids.remove(old.name());
        }
        match row {
            Some(row) => self.rows.insert(id.to_owned(), row),
            None => self.rows.remove(id),
        }
    }
}

macro_rules! record {
    ($record:ty, $table:ident, $name:ident, $owed:expr) => {
        impl Record for $record {
            const FILE: TableDefinition<'static, &'static str, &'static [u8]> =
                TableDefinition::new(stringify!($table));

            fn id(&self) -> &str {
                &self.id
            }

            fn name(&self) -> &str {
                &self.$name
            }

            fn table(state: &State) -> &Table<Self> {
                &state.$table
            }

            fn table_mut(state: &mut State) -> &mut Table<Self> {
                &mut state.$table
            }

            fn owed(&self) -> Option<Owed<'_>> {
                let owed: fn(&Self) -> Option<Owed<'_>> = $owed;
                owed(self)
            }
        }
    };
}

record!(Volume, volumes, name, |volume| Some(volume.owed()));
record!(Snapshot, snapshots, name, |snapshot| Some(snapshot.owed()));
record!(Group, groups, name, |_| None);
record!(Node, nodes, id, |_| None);
