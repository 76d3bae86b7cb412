//! Notes of images attached to loop devices, for teardowns while their pool is not served.
//!
//! The kernel does not tell whose a loop device is: the path of its image depends on the reader,
//! and is shortened once the pool's mount is gone. So the driver notes the device number, inode and
//! random file name of an image before it attaches it. A note is valid until the next boot, which
//! ends all loop devices and changes device numbers. An image whose disk came back under another
//! device number has a note per file: the old one may still be attached.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use wharf_mount::{loopdev::Loop, sync};

use crate::{
    error::Error,
    files,
    pool::{Layout, PoolId},
    private,
};

const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Note of an attached image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedImage {
    /// ID of the volume.
    pub volume: String,
    /// Pool of the volume.
    pub pool: PoolId,
    /// Stem of the image's file name.
    pub image: String,
    /// Device number of the image's filesystem, as in `st_dev`.
    pub device: u64,
    /// Inode of the image.
    pub inode: u64,
}

/// The notes of all attached images.
#[derive(Debug)]
pub struct AttachedImages {
    folder: PathBuf,
    boot: String,
    notes: Mutex<Vec<AttachedImage>>,
}

/// Format of a note's file.
#[derive(Serialize, Deserialize)]
struct NoteFile {
    boot: String,
    #[serde(flatten)]
    note: AttachedImage,
}

impl AttachedImages {
    /// Reads the notes in a folder. Removes notes of an earlier boot, damaged notes and foreign
    /// files.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(super) fn open(folder: PathBuf) -> Result<Self, Error> {
        let boot = files::read(Path::new(BOOT)).map_err(Error::file("read", BOOT))?;
        Self::of_boot(folder, String::from_utf8_lossy(&boot).trim())
    }

    fn of_boot(folder: PathBuf, boot: &str) -> Result<Self, Error> {
        private::create_own_folder(&folder)?;
        let mut notes = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::file("list", &folder))? {
            let path = entry.map_err(Error::file("list", &folder))?.path();
            let read = files::read(&path).ok();
            let read = read.and_then(|bytes| serde_json::from_slice::<NoteFile>(&bytes).ok());
            match read.filter(|file| file.boot == boot && is_stem(&file.note.image)) {
                Some(NoteFile { note, .. }) => {
                    let own = file_of(&folder, &note);
                    if own != path {
                        fs::rename(&path, own).map_err(Error::file("rename", path))?;
                    }
                    notes.push(note);
                }
                // Such as the temporary file of an interrupted write.
                None => clear_away(&path),
            }
        }
        Ok(Self { folder, boot: boot.to_owned(), notes: Mutex::new(notes) })
    }

    /// Writes a note, durably. A no-op if it exists.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&self, note: AttachedImage) -> Result<(), Error> {
        if self.lock().contains(&note) {
            return Ok(());
        }
        let path = file_of(&self.folder, &note);
        let file = NoteFile { boot: self.boot.clone(), note };
        files::write(&path, &serde_json::to_vec(&file).unwrap_or_default())?;
        sync::folder(&self.folder)?;
        self.lock().push(file.note);
        Ok(())
    }

    /// Removes the notes of a detached image. A note that a crash brings back is harmless: no
    /// device has the image.
    pub fn remove(&self, image: &str) {
        self.remove_where(|note| note.image == image);
    }

    /// Removes the notes that satisfy the predicate.
    pub fn remove_where(&self, is_old: impl Fn(&AttachedImage) -> bool) {
        let mut notes = self.lock();
        for note in notes.iter().filter(|note| is_old(note)) {
            if let Err(error) = fs::remove_file(file_of(&self.folder, note)) {
                tracing::warn!(image = note.image, %error, "failed to remove note of attached image");
            }
        }
        notes.retain(|note| !is_old(note));
    }

    /// Returns the note of the image that a device shows.
    pub fn of_device(&self, device: &Loop) -> Option<AttachedImage> {
        let image = image_of(&device.backing)?;
        let notes = self.lock();
        let mut of_image = notes.iter().filter(|note| note.image == image);
        // The kernel does not report the file of a disk that does not respond.
        let is_unknown = matches!(device.identity(), (0, 0));
        of_image.find(|note| is_unknown || device.identity() == (note.device, note.inode)).cloned()
    }

    /// Returns the notes of a pool's images.
    pub fn of_pool(&self, pool: PoolId) -> Vec<AttachedImage> {
        self.lock().iter().filter(|note| note.pool == pool).cloned().collect()
    }

    /// Returns the IDs of the volumes with attached images.
    pub fn volumes(&self) -> BTreeSet<String> {
        self.lock().iter().map(|note| note.volume.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<AttachedImage>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn file_of(folder: &Path, note: &AttachedImage) -> PathBuf {
    folder.join(format!("{}-{:x}-{:x}.json", note.image, note.device, note.inode))
}

/// Whether a text can be the stem of an image's file name, and so of a note's.
fn is_stem(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Removes a foreign file. A folder that is not empty stays.
fn clear_away(path: &Path) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|there| there.is_dir());
    let removed = if is_folder { fs::remove_dir(path) } else { fs::remove_file(path) };
    if let Err(error) = removed {
        tracing::warn!(path = %path.display(), %error, "failed to remove foreign file from state folder");
    }
}

/// Returns the stem of a volume's image from any path of the image.
pub(crate) fn image_of(backing: &Path) -> Option<String> {
    let name = backing.file_name()?.to_str()?;
    let stem = name.strip_suffix(" (deleted)").unwrap_or(name).strip_suffix(".img")?;
    let pool = backing.parent()?.parent()?;
    (Layout::new(pool).volumes() == backing.parent()?).then(|| stem.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(image: &str) -> AttachedImage {
        let pool = "11111111-2222-4333-8444-555555555555".parse().expect("a UUID");
        let (volume, image) = ("vol-1".to_owned(), image.to_owned());
        AttachedImage { volume, pool, image, device: 7, inode: 12 }
    }

    fn device(backing: &str, (device, inode): (u64, u64)) -> Loop {
        Loop {
            path: "/dev/loop7".into(),
            number: 7,
            device,
            inode,
            backing: backing.into(),
            read_only: false,
            direct_io: false,
            clearing: false,
            partial: false,
        }
    }

    #[test]
    fn notes_outlive_the_driver_and_end_with_the_boot() {
        let folder = tempfile::tempdir().expect("folder");
        let open = |boot| AttachedImages::of_boot(folder.path().to_owned(), boot).expect("opened");
        let notes = open("one");
        notes.keep(note("a")).expect("kept");
        notes.keep(note("b")).expect("kept");
        notes.remove("b");
        fs::write(folder.path().join("cut.json.new"), "{").expect("written");
        fs::create_dir(folder.path().join("folder.json")).expect("made");
        assert_eq!(open("one").of_pool(note("a").pool), [note("a")]);
        assert_eq!(open("two").of_pool(note("a").pool), []);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn an_image_has_a_note_for_each_file_and_none_leads_out_of_the_folder() {
        let folder = tempfile::tempdir().expect("folder");
        let (inside, outside) = (folder.path().join("attached"), folder.path().join("a.json"));
        let open = || AttachedImages::of_boot(inside.clone(), "one").expect("opened");
        let notes = open();
        let (old, new) = (note("a"), AttachedImage { device: 8, ..note("a") });
        notes.keep(old.clone()).expect("kept");
        notes.keep(new.clone()).expect("kept");
        let text = fs::read_to_string(file_of(&inside, &old)).expect("a note");
        fs::write(&outside, "").expect("written");
        fs::write(inside.join("evil.json"), text.replace("\"a\"", "\"../a\"")).expect("written");
        // The file name that an older release used.
        fs::rename(file_of(&inside, &old), inside.join("a.json")).expect("renamed");
        let notes = open();
        assert_eq!(notes.of_pool(old.pool).len(), 2);
        for expected in [old, new] {
            let identity = (expected.device, expected.inode);
            assert_eq!(notes.of_device(&device("/volumes/a.img", identity)), Some(expected));
        }
        notes.remove("a");
        assert_eq!(fs::read_dir(&inside).expect("a folder").count(), 0);
        assert!(outside.exists());
    }

    #[test]
    fn a_device_is_known_by_name_and_inode_whatever_leads_to_its_image() {
        let folder = tempfile::tempdir().expect("folder");
        let notes = AttachedImages::of_boot(folder.path().to_owned(), "one").expect("opened");
        notes.keep(note("a")).expect("kept");
        for path in ["/pool/volumes/a.img", "/volumes/a.img", "/pool/volumes/a.img (deleted)"] {
            assert_eq!(notes.of_device(&device(path, (7, 12))), Some(note("a")), "{path}");
            assert_eq!(notes.of_device(&device(path, (0, 0))), Some(note("a")), "{path}");
            assert_eq!(notes.of_device(&device(path, (7, 13))), None, "{path}");
        }
        for path in ["/pool/volumes/b.img", "/pool/snapshots/a.img", "/a.img", "/pool/volumes/a"] {
            assert_eq!(notes.of_device(&device(path, (7, 12))), None, "{path}");
        }
    }
}
