//! Volumes that grow.

use std::sync::{Arc, PoisonError};

use super::rules::Wanted;
use super::{Mark, Pool};
use crate::backend::Shape;
use crate::devices::ImageLock;
use crate::error::Error;
use crate::points::Point;
use crate::record::{Phase, Volume};

impl Pool {
    /// Grows a volume's image, and its devices where it is in use. A volume that is large enough stays as it is.
    ///
    /// # Errors
    /// When the pool is full or its disk fails; then the volume keeps its size.
    pub fn expand_volume(&self, id: &str, to: u64) -> Result<Arc<Volume>, Error> {
        // Before the larger size is promised: a call that is refused leaves no promise.
        let volume = self.whole_volume(id)?;
        self.restore_image(&volume)?;
        self.ensure_whole(&volume)?;
        let (key, rules) = (id.to_owned(), self.rules());
        let volume = self.store.update(move |draft| {
            let volume = draft.volumes.get(&key).filter(|volume| volume.is_whole()).cloned();
            let volume = volume.ok_or_else(|| Error::no_volume(&key))?;
            // An expansion that was cut short may have promised more than this call asks for.
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

    /// A whole volume that is not growing, so that it can be copied: an expansion that failed half-way is finished first.
    ///
    /// # Errors
    /// When there is no such volume, or its expansion cannot be finished.
    pub fn settled_volume(&self, id: &str) -> Result<Arc<Volume>, Error> {
        let volume = self.whole_volume(id)?;
        if volume.phase == Phase::Ready {
            return Ok(volume);
        }
        // Several clones of one volume may be made at the same time.
        let _alone = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let volume = self.whole_volume(id)?;
        let Phase::Expanding { to } = volume.phase else { return Ok(volume) };
        match (self.finish_expand(&volume, to), self.whole_volume(id)?) {
            (Ok(grown), _) => Ok(grown),
            // It keeps the size that it had.
            (Err(_), kept) if kept.phase == Phase::Ready => Ok(kept),
            (Err(error), _) => Err(Error::Pending(format!(
                "volume {id} is being expanded to {to} bytes, which has to be finished before it is copied: {error}"
            ))),
        }
    }

    /// The rest of an expansion, whose record says so already. Each step may be repeated.
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

    /// Takes the promise of a larger size back, and the part of it that was made.
    fn keep_size(&self, image: &ImageLock<'_>, volume: &Volume) {
        let kept =
            image.shorten(volume.capacity).and_then(|()| self.set_size(volume, volume.capacity));
        if let Err(error) = kept {
            tracing::warn!(volume = volume.id, %error, "failed to take back an expansion, it stays promised");
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
