//! Records which server changed which field of a call. No I/O.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    config::Server,
    edit::{Edit, Field, Value},
};

/// The rule for a server that changes a field which another server has changed for the same call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// Its answer counts as failed, under its policy.
    #[default]
    Refuse,
    /// The first change stays, and the rest of its answer counts.
    First,
    /// The last change wins.
    Last,
}

impl Conflict {
    /// The name in flags, logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Conflict::Refuse => "refuse",
            Conflict::First => "first",
            Conflict::Last => "last",
        }
    }
}

/// The changes of one call so far.
#[derive(Default)]
pub(super) struct Ledger {
    entries: BTreeMap<Field, Entry>,
}

struct Entry {
    owner: Arc<Server>,
    from: Value,
    to: Value,
}

/// A field that a server wanted to change, and the server that had changed it.
#[derive(Clone, Debug)]
pub(crate) struct Dispute {
    pub(crate) field: Field,
    pub(crate) owner: Arc<Server>,
}

impl Ledger {
    /// The `edits` of fields that other servers have changed.
    pub(super) fn disputes(&self, edits: &[Edit]) -> Vec<Dispute> {
        let of = |edit: &Edit| {
            let owner = self.entries.get(&edit.field)?.owner.clone();
            Some(Dispute { field: edit.field.clone(), owner })
        };
        edits.iter().filter_map(of).collect()
    }

    /// Removes edits of fields that other servers have changed.
    pub(super) fn without_disputed(&self, edits: Vec<Edit>) -> Vec<Edit> {
        edits.into_iter().filter(|edit| !self.entries.contains_key(&edit.field)).collect()
    }

    /// Adds changes. `server` becomes the owner of each field.
    pub(super) fn enter(&mut self, server: &Arc<Server>, edits: &[Edit]) {
        for Edit { field, from, to } in edits {
            let known = self.entries.remove(field);
            let from = known.map_or_else(|| from.clone(), |entry| entry.from);
            let entry = Entry { owner: server.clone(), from, to: to.clone() };
            self.entries.insert(field.clone(), entry);
        }
    }

    /// The net changes: for each field from its first value to its last.
    pub(super) fn net(self) -> Vec<Edit> {
        let changed = self.entries.into_iter().filter(|(_, entry)| entry.from != entry.to);
        changed.map(|(field, Entry { from, to, .. })| Edit { field, from, to }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> Arc<Server> {
        Arc::new(Server::new(name, "/a.sock"))
    }

    fn edit(key: &str, from: &str, to: &str) -> Edit {
        let (from, to) = (Value::Text(from.to_owned()), Value::Text(to.to_owned()));
        Edit { field: Field::Env(key.to_owned()), from, to }
    }

    #[test]
    fn fields_have_owners_and_other_fields_do_not_matter() {
        let mut ledger = Ledger::default();
        ledger.enter(&server("a"), &[edit("A", "1", "2")]);
        let edits = vec![edit("A", "2", "3"), edit("B", "1", "2")];
        let disputes = ledger.disputes(&edits);
        assert_eq!(disputes.len(), 1);
        assert_eq!(disputes[0].owner.name, "a");
        assert_eq!(disputes[0].field, Field::Env("A".into()));
        assert_eq!(ledger.without_disputed(edits), [edit("B", "1", "2")]);
    }

    #[test]
    fn the_net_is_from_first_to_last() {
        let mut ledger = Ledger::default();
        ledger.enter(&server("a"), &[edit("A", "1", "2"), edit("B", "1", "2")]);
        ledger.enter(&server("b"), &[edit("A", "2", "3"), edit("B", "2", "1")]);
        assert_eq!(ledger.disputes(&[edit("A", "3", "4")])[0].owner.name, "b", "the last one");
        assert_eq!(ledger.net(), [edit("A", "1", "3")], "B is as it was");
    }
}
