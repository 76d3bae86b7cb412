//! Expands volumes.

use std::sync::{Arc, PoisonError};

use super::{Mark, Pool, rules::Wanted};
use crate::{
    backend::Shape,
    devices::ImageLock,
    error::Error,
    points::Point,
    record::{Phase, Volume},
};

impl Pool {
    /// Expands a volume's image, and its devices if it is in use. A volume that is large enough
    /// keeps its size.
    ///
    /// # Errors
    /// If the pool is full or its disk fails; then the volume keeps its size.
    pub fn expand_volume(&self, id: &str, to: u64) -> Result<Arc<Volume>, Error> {
        // Before the larger size is promised, so that a refused call leaves no promise.
        let volume = self.whole_volume(id)?;
        self.restore_image(&volume)?;
        self.ensure_whole(&volume)?;
        let (key, rules) = (id.to_owned(), self.rules());
        let volume = self.store.update(move |draft| {
            let volume = draft.volumes.get(&key).filter(|volume| volume.is_whole()).cloned();
            let volume = volume.ok_or_else(|| Error::no_volume(&key))?;
            // An interrupted expansion may have promised more than this call requests.
            let to = match volume.phase {
                Phase::Expanding { to: promised } => to.max(promised),
                _ => to,
            };
            if to <= volume.capacity {
                return Ok(volume);
            }
            let more = to.saturating_sub(volume.size());
            let wanted = match volume.thin {
                true => Wanted { promised: 0, thin: Some(more) },
                false => Wanted { promised: more, thin: None },
            };
            rules.room_for(draft, wanted)?;
            let grow = |volume: &mut Volume| volume.phase = Phase::Expanding { to };
            draft.edit(&key, grow).ok_or_else(|| Error::no_volume(&key))
        })?;
        let Phase::Expanding { to } = volume.phase else { return Ok(volume) };
        self.reach(Point::ExpandPromised)?;
        self.finish_expand(&volume, to)
    }

    /// Returns a complete volume that is not being expanded, so that it can be copied. Finishes an
    /// interrupted expansion first.
    ///
    /// # Errors
    /// If the volume does not exist, or its expansion cannot be finished.
    pub fn settled_volume(&self, id: &str) -> Result<Arc<Volume>, Error> {
        let volume = self.whole_volume(id)?;
        if volume.phase == Phase::Ready {
            return Ok(volume);
        }
        // Concurrent clones of one volume get here.
        let _alone = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let volume = self.whole_volume(id)?;
        let Phase::Expanding { to } = volume.phase else { return Ok(volume) };
        match (self.finish_expand(&volume, to), self.whole_volume(id)?) {
            (Ok(grown), _) => Ok(grown),
            // The failed expansion was undone: the volume has its old size.
            (Err(_), kept) if kept.phase == Phase::Ready => Ok(kept),
            (Err(error), _) => Err(Error::Pending(format!(
                "volume {id} is being expanded to {to} bytes, which has to be finished before it is copied: {error}"
            ))),
        }
    }

    /// Finishes an expansion that is recorded. Each step may be repeated.
    pub(super) fn finish_expand(&self, volume: &Volume, to: u64) -> Result<Arc<Volume>, Error> {
        let lock = self.lock_image(volume)?;
        self.roll_back(&lock, volume)?;
        self.ensure_whole(volume)?;
        let _change = lock.change()?;
        let image = self.image(volume);
        let shape = Shape { size: to, thin: volume.thin };
        if let Err(error) = self.backend(volume.backend).grow(&image, shape) {
            self.keep_size(&lock, volume);
            return Err(error);
        }
        self.reach(Point::ExpandGrown)?;
        for device in self.devices.find(&image)? {
            device.set_capacity()?;
        }
        self.reach(Point::ExpandAnnounced)?;
        let grown = Volume { phase: Phase::Ready, capacity: to, ..volume.clone() };
        Mark::volume(&grown).write(&image)?;
        let ready = self.set_size(volume, to)?;
        self.reach(Point::ExpandReady)?;
        Ok(ready)
    }

    /// Undoes the promise of a larger size, and the part of the growth that was done.
    fn keep_size(&self, image: &ImageLock<'_>, volume: &Volume) {
        let kept =
            image.shorten(volume.capacity).and_then(|()| self.set_size(volume, volume.capacity));
        if let Err(error) = kept {
            tracing::warn!(volume = volume.id, %error, "failed to undo expansion, it stays promised");
        }
    }

    fn set_size(&self, volume: &Volume, capacity: u64) -> Result<Arc<Volume>, Error> {
        let id = volume.id.clone();
        self.store.update(move |draft| {
            let ready = draft.edit(&id, |volume: &mut Volume| {
                volume.phase = Phase::Ready;
                volume.capacity = capacity;
            });
            ready.ok_or_else(|| Error::no_volume(&id))
        })
    }
}
