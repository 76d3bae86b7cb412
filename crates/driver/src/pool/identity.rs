//! The identity of a pool: a UUID and a format version in a file on the pool.
//!
//! If a disk is missing, its mount point shows another disk or an empty folder. So the driver also
//! notes the UUID outside of the pool ([`crate::state_dir`]), and serves a pool only if both agree.

use std::{fmt, io::ErrorKind, str::FromStr};

use serde::{Deserialize, Serialize};
use wharf_mount::sync;

use super::Layout;
use crate::{error::Error, files, random, store::Store};

/// Format version of this release. Pools of another version are refused.
pub const FORMAT: u32 = 1;

/// UUID of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PoolId([u8; 16]);

/// Content of a pool's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A pool with this UUID.
    Pool(PoolId),
    /// A pool of a release before pools had UUIDs.
    Unmarked,
    /// No pool.
    Nothing,
}

/// Content of the identity file.
#[derive(Debug, Serialize, Deserialize)]
struct IdentityFile {
    format: u32,
    uuid: PoolId,
}

impl PoolId {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut bytes: [u8; 16] = random()?;
        // Version 4, variant 1: random.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Ok(Self(bytes))
    }

    /// The part of the UUID that is in the IDs of the pool's volumes.
    pub fn short(self) -> String {
        self.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Detects the content of a pool's folder, without changing anything.
///
/// # Errors
/// If the folder cannot be read, or has a pool with an unknown format.
pub fn look(layout: &Layout) -> Result<Found, Error> {
    let path = layout.identity();
    let bytes = match files::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(if layout.is_used()? { Found::Unmarked } else { Found::Nothing });
        }
        Err(error) => return Err(Error::file("read", path)(error)),
    };
    // Read the format first: the rest may differ in another format.
    #[derive(Deserialize)]
    struct Numbered {
        format: u32,
    }
    let unreadable = |error: serde_json::Error| {
        Error::Precondition(format!(
            "{}: expected the pool's format and UUID as JSON: {error}; restore the file, or remove it and run `wharf driver \
             pool adopt`",
            path.display()
        ))
    };
    let numbered: Numbered = serde_json::from_slice(&bytes).map_err(unreadable)?;
    if numbered.format != FORMAT {
        return Err(Error::Precondition(format!(
            "{}: the pool has format {}, and this release knows format {FORMAT}: run the release that wrote it",
            path.display(),
            numbered.format
        )));
    }
    let file: IdentityFile = serde_json::from_slice(&bytes).map_err(unreadable)?;
    Ok(Found::Pool(file.uuid))
}

/// Converts a pool to the format of this release. Returns a text about what was done. No driver may
/// serve the pool.
///
/// # Errors
/// If the pool has an unknown format, or a driver serves it.
pub fn migrate(layout: &Layout) -> Result<String, Error> {
    let before = look(layout)?;
    // Lock the pool against other writers.
    let _store = Store::open(&layout.state(), &layout.ballast())?;
    let id = ensure(layout)?;
    Ok(match before {
        Found::Pool(_) => {
            format!("pool {id} has format {FORMAT}, which this release writes: nothing to do")
        }
        Found::Unmarked | Found::Nothing => format!("pool {id} has format {FORMAT} now"),
    })
}

/// Returns the identity of the pool in a folder; creates it durably if there is none.
pub(super) fn ensure(layout: &Layout) -> Result<PoolId, Error> {
    if let Found::Pool(id) = look(layout)? {
        return Ok(id);
    }
    let uuid = PoolId::new()?;
    let file = IdentityFile { format: FORMAT, uuid };
    files::write(&layout.identity(), &serde_json::to_vec(&file).unwrap_or_default())?;
    sync::folder(layout.root())?;
    Ok(uuid)
}

impl fmt::Display for PoolId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(out, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for PoolId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("{text:?} is not a UUID");
        let digits: String = text.chars().filter(|letter| *letter != '-').collect();
        if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(expected());
        }
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let pair = &digits[2 * index..2 * index + 2];
            *byte = u8::from_str_radix(pair, 16).map_err(|_| expected())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for PoolId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PoolId> for String {
    fn from(id: PoolId) -> Self {
        id.to_string()
    }
}

/// Returns the pool's part of the ID of a volume, snapshot or group, if the ID has one.
pub fn short_of(id: &str) -> Option<&str> {
    let mut parts = id.split('-');
    let (kind, short, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let ours = matches!(kind, "vol" | "snap" | "group") && parts.next().is_none();
    let whole = short.len() == 8 && rest.len() == 32 && hexadecimal(short) && hexadecimal(rest);
    (ours && whole).then_some(short)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_identity_is_made_once_and_read_again() {
        let folder = tempfile::tempdir().expect("folder");
        let layout = Layout::new(folder.path());
        assert_eq!(look(&layout).expect("readable"), Found::Nothing);
        let id = ensure(&layout).expect("written");
        assert_eq!(ensure(&layout).expect("read"), id);
        assert_eq!(look(&layout).expect("readable"), Found::Pool(id));
        assert_eq!(id.to_string().parse::<PoolId>(), Ok(id));
        assert!(id.to_string().starts_with(&id.short()));
    }

    #[test]
    fn other_formats_and_damage_are_refused_by_name() {
        let folder = tempfile::tempdir().expect("folder");
        let layout = Layout::new(folder.path());
        for (text, expected) in [
            (r#"{"format":7,"name":"x"}"#, "format 7"),
            ("", "expected the pool's format"),
            (r#"{"format":1,"uuid":"12"}"#, "is not a UUID"),
        ] {
            fs::write(layout.identity(), text).expect("written");
            let refused = look(&layout).expect_err(text).to_string();
            assert!(refused.contains(expected) && refused.contains("pool.json"), "{refused}");
        }
    }

    #[test]
    fn ids_carry_the_pool() {
        let rest = "0123456789abcdef0123456789abcdef";
        assert_eq!(short_of(&format!("vol-89abcdef-{rest}")), Some("89abcdef"));
        assert_eq!(short_of(&format!("vol-{rest}")), None);
        assert_eq!(short_of(&format!("csi-89abcdef-{rest}")), None);
        assert_eq!(short_of("vol-89abcdef-"), None);
    }
}
