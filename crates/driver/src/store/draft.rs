//! The state during an update. Every change can be undone.

use std::{
    collections::BTreeMap,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use redb::WriteTransaction;

use super::{
    StoreError,
    state::{Record, State},
};

type Undo = Box<dyn FnOnce(&mut State) + Send>;

/// Functions for a changed record, which know its type.
#[derive(Clone, Copy)]
struct Touched {
    persist: fn(&State, &str, &WriteTransaction) -> Result<(), redb::Error>,
    publish: fn(&State, &str, &mut State),
}

/// The state during an update. Dereferences to its present content.
pub struct Draft<'a> {
    state: &'a mut State,
    undo: Vec<Undo>,
    touched: BTreeMap<(&'static str, String), Touched>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(state: &'a mut State) -> Self {
        Self { state, undo: Vec::new(), touched: BTreeMap::new() }
    }

    /// Adds or replaces a record.
    pub fn put<R: Record>(&mut self, row: R) {
        let id = row.id().to_owned();
        self.set(&id, Some(Arc::new(row)));
    }

    /// Edits the record with this ID, if it exists, and returns the result.
    pub fn edit<R: Record + Clone>(
        &mut self,
        id: &str,
        edit: impl FnOnce(&mut R),
    ) -> Option<Arc<R>> {
        let mut row = R::clone(R::table(self.state).get(id)?);
        edit(&mut row);
        self.set(id, Some(Arc::new(row)));
        R::table(self.state).get(id).cloned()
    }

    /// Removes the record with this id.
    pub fn remove<R: Record>(&mut self, id: &str) {
        self.set::<R>(id, None);
    }

    /// Runs `change`, and undoes it if it fails.
    pub(super) fn all_or_nothing<T, E: From<StoreError>>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let before = self.undo.len();
        // A panic fails only its own update, not the writer thread.
        let result = catch_unwind(AssertUnwindSafe(|| change(self)))
            .unwrap_or_else(|_| Err(StoreError::Panicked.into()));
        if result.is_err() {
            self.take_back(before);
        }
        result
    }

    pub(super) fn is_clean(&self) -> bool {
        self.undo.is_empty()
    }

    pub(super) fn persist(&self, transaction: &WriteTransaction) -> Result<(), redb::Error> {
        let mut touched = self.touched.iter();
        touched.try_for_each(|((_, id), row)| (row.persist)(self.state, id, transaction))
    }

    /// Copies the changes to the readers' state.
    pub(super) fn publish(&self, shared: &mut State) {
        for ((_, id), row) in &self.touched {
            (row.publish)(self.state, id, shared);
        }
    }

    pub(super) fn take_back_all(&mut self) {
        self.take_back(0);
    }

    fn take_back(&mut self, to: usize) {
        for undo in self.undo.drain(to..).rev() {
            undo(self.state);
        }
    }

    fn set<R: Record>(&mut self, id: &str, row: Option<Arc<R>>) {
        let old = self.state.set(id, row);
        let key = id.to_owned();
        self.undo.push(Box::new(move |state| {
            state.set(&key, old);
        }));
        let touched = Touched { persist: persist::<R>, publish: publish::<R> };
        self.touched.insert((std::any::type_name::<R>(), id.to_owned()), touched);
    }
}

impl Deref for Draft<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state
    }
}

fn persist<R: Record>(
    state: &State,
    id: &str,
    transaction: &WriteTransaction,
) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(R::FILE)?;
    match R::table(state).get(id) {
        Some(row) => {
            let bytes = serde_json::to_vec(row.as_ref())
                .map_err(|error| redb::Error::Io(std::io::Error::other(error)))?;
            table.insert(id, bytes.as_slice())?;
        }
        None => {
            table.remove(id)?;
        }
    }
    Ok(())
}

fn publish<R: Record>(state: &State, id: &str, shared: &mut State) {
    shared.set(id, R::table(state).get(id).cloned());
}
