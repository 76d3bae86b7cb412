//! A volume's facts that change after it was made: its content and its limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Mark, Pool};
use crate::error::Error;
use crate::points::Point;
use crate::record::{Content, Volume};

impl Pool {
    /// Keeps new limits. Parameters that are absent change nothing; one that is unknown refuses all.
    ///
    /// # Errors
    /// When a parameter is unknown, or there is no such volume.
    pub fn set_limits(
        &self,
        id: &str,
        parameters: &BTreeMap<String, String>,
    ) -> Result<Arc<Volume>, Error> {
        let (key, parameters) = (id.to_owned(), parameters.clone());
        let volume = self.store.update(move |draft| {
            let volume = draft.volumes.get(&key).filter(|volume| volume.is_whole());
            let volume = volume.ok_or_else(|| Error::no_volume(&key))?;
            let limits = volume.limits.with(&parameters).map_err(|error| {
                Error::invalid(format!("mutable_parameters.{}", error.key), error.expected)
            })?;
            let edited = draft.edit(&key, |volume: &mut Volume| volume.limits = limits);
            edited.ok_or_else(|| Error::no_volume(&key))
        })?;
        Mark::volume(&volume).write(&self.image(&volume))?;
        self.reach(Point::ModifyKept)?;
        Ok(volume)
    }

    /// Keeps what a volume's image holds.
    pub(crate) fn set_content(&self, id: &str, content: Content) -> Result<Arc<Volume>, Error> {
        let volume = self.edit_volume(id, move |volume| volume.content = content)?;
        Mark::volume(&volume).write(&self.image(&volume))?;
        Ok(volume)
    }

    /// Changes a volume's record.
    pub(crate) fn edit_volume(
        &self,
        id: &str,
        edit: impl FnOnce(&mut Volume) + Send + 'static,
    ) -> Result<Arc<Volume>, Error> {
        let key = id.to_owned();
        self.store.update(move |draft| draft.edit(&key, edit).ok_or_else(|| Error::no_volume(&key)))
    }
}
