//! Changes the content and the limits of a volume's record.

use std::{collections::BTreeMap, sync::Arc};

use super::{Mark, Pool};
use crate::{
    error::Error,
    points::Point,
    record::{Content, Volume},
};

impl Pool {
    /// Records new limits. Absent parameters change nothing; an unknown one refuses all.
    ///
    /// # Errors
    /// If a parameter is unknown, or the volume does not exist.
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

    /// Records the content of a volume's image.
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
