//! Configuration of pools, from flags or a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::Deserialize;
use wharf_facts::quantity;
use wharf_mount::{Filesystem, format};

use crate::{
    pool::{Kinds, Layout, PoolSettings},
    pool_image,
};

/// The pool of StorageClasses that name none.
pub const DEFAULT_POOL: &str = "default";

/// Maximum length of a pool's name.
const MAX_NAME: usize = 63;

/// Configuration of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// Name, by which a StorageClass selects the pool.
    pub name: String,
    /// Folder of the pool.
    pub folder: PathBuf,
    /// Size of the XFS image that is created in the folder and holds the pool; `None` for a pool in
    /// the folder itself.
    pub image: Option<u64>,
    /// Settings that may change while the pool is served.
    pub settings: PoolSettings,
}

impl PoolConfig {
    /// The pool `default` in a folder, with default settings.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        let (name, settings) = (DEFAULT_POOL.to_owned(), PoolSettings::default());
        Self { name, folder: folder.into(), image: None, settings }
    }
}

/// Value of the flag `--pool`: `DIR`, or `NAME=DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFlag {
    /// Name of the pool.
    pub name: String,
    /// Folder of the pool.
    pub folder: PathBuf,
}

/// An invalid configuration; the text names the pool and the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// Parses a configuration file.
///
/// # Errors
/// If the file is invalid; the text says what was expected, and where.
pub fn parse(text: &str) -> Result<Vec<PoolConfig>, ConfigError> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: ConfigFile = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ConfigError(error.to_string()))?;
    let pools = file.pools.into_iter().enumerate();
    let pools: Vec<_> = pools
        .map(|(index, entry)| {
            entry.read().map_err(|(field, expected)| {
                ConfigError(format!("pools[{index}].{field}: {expected}"))
            })
        })
        .collect::<Result<_, _>>()?;
    check(&pools)?;
    Ok(pools)
}

/// Refuses pools that conflict. Compares only the names of their folders, without access to a disk:
/// the thread that opens a pool resolves symlinks.
///
/// # Errors
/// If there is no pool, two pools have one name or one folder, or one is inside the images of
/// another pool.
pub fn check(pools: &[PoolConfig]) -> Result<(), ConfigError> {
    if pools.is_empty() {
        return Err(ConfigError("pools: expected at least one pool".to_owned()));
    }
    let absolute: Vec<_> = pools.iter().map(|pool| absolute(&pool.folder)).collect();
    let mut kept = BTreeMap::new();
    for (pool, folder) in pools.iter().zip(&absolute) {
        kept.extend(kept_folders(folder).into_iter().map(|own| (own, &pool.name)));
    }
    let (mut names, mut folders) = (BTreeSet::new(), BTreeSet::new());
    for (pool, folder) in pools.iter().zip(&absolute) {
        if !names.insert(&pool.name) {
            return Err(ConfigError(format!("pool {}: the name is given twice", pool.name)));
        }
        if let Some(other) = folder.ancestors().find_map(|it| kept.get(it)) {
            return Err(ConfigError(format!(
                "pool {}: its folder {} is inside of pool {other}, where the driver keeps images",
                pool.name,
                pool.folder.display()
            )));
        }
        if !folders.insert(folder) {
            return Err(ConfigError(format!(
                "pool {}: its folder {} is another pool's, too",
                pool.name,
                pool.folder.display()
            )));
        }
    }
    Ok(())
}

/// Folders of a pool in which the driver keeps images.
pub(crate) fn kept_folders(folder: &Path) -> Vec<PathBuf> {
    let own = Layout::new(folder).folders().into_iter();
    own.chain([pool_image::mount_point(folder)]).collect()
}

/// Makes a path absolute. Unlike `canonicalize` it accesses no disk, which might hang.
fn absolute(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

impl FromStr for PoolFlag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, folder) = match text.split_once('=') {
            Some((name, folder)) if !name.contains('/') => (name, folder),
            _ => (DEFAULT_POOL, text),
        };
        check_name(name)?;
        if folder.is_empty() {
            return Err("expected a folder: DIR, or NAME=DIR".to_owned());
        }
        Ok(Self { name: name.to_owned(), folder: folder.into() })
    }
}

impl fmt::Display for PoolFlag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.folder.display())
    }
}

/// Refuses an invalid pool name.
///
/// # Errors
/// A text that says what was expected.
pub fn check_name(name: &str) -> Result<(), String> {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = |byte: Option<&u8>| byte.copied().is_some_and(letter);
    let bytes = name.as_bytes();
    let plain = bytes.iter().all(|byte| letter(*byte) || *byte == b'-');
    if plain && ends(bytes.first()) && ends(bytes.last()) && bytes.len() <= MAX_NAME {
        return Ok(());
    }
    Err(format!(
        "expected a name of at most {MAX_NAME} lower-case letters, digits and dashes, such as fast, not {name:?}"
    ))
}

/// Refuses a size that is too small for a pool image.
///
/// # Errors
/// A text that says what was expected.
pub fn check_image_size(size: u64) -> Result<(), String> {
    let least = format::minimum_size(Filesystem::Xfs);
    match size >= least {
        true => Ok(()),
        false => {
            Err(format!("expected at least {}Mi, the smallest XFS, not {size} bytes", least >> 20))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    pools: Vec<PoolEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PoolEntry {
    name: String,
    folder: PathBuf,
    #[serde(default)]
    image: Option<Scalar>,
    #[serde(default)]
    kinds: Option<Kinds>,
    #[serde(default)]
    floor: Option<Scalar>,
    #[serde(default)]
    thin_ratio: Option<f64>,
    #[serde(default)]
    thin_floor: Option<Scalar>,
    #[serde(default)]
    drain: bool,
}

/// A size, which YAML may parse as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Number(u64),
    Text(String),
}

impl Scalar {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }

    fn bytes(self) -> Result<u64, String> {
        let bytes = quantity::parse(&self.text())?;
        bytes.try_into().map_err(|_| "expected a size of 0 or more".to_owned())
    }
}

impl PoolEntry {
    /// Converts the entry; an error is the wrong field and what was expected.
    fn read(self) -> Result<PoolConfig, (&'static str, String)> {
        let named = |field: &'static str| move |expected: String| (field, expected);
        check_name(&self.name).map_err(named("name"))?;
        if !self.folder.is_absolute() {
            return Err(("folder", format!("expected an absolute path, not {:?}", self.folder)));
        }
        let settings = PoolSettings {
            kinds: self.kinds.unwrap_or_default(),
            floor: self.floor.map(Scalar::bytes).transpose().map_err(named("floor"))?,
            thin_ratio: match self.thin_ratio {
                Some(ratio) => ratio.try_into().map_err(named("thinRatio"))?,
                None => Default::default(),
            },
            thin_floor: match self.thin_floor {
                Some(share) => share.text().parse().map_err(named("thinFloor"))?,
                None => Default::default(),
            },
            drain: self.drain,
        };
        let image = self.image.map(Scalar::bytes).transpose().map_err(named("image"))?;
        image.map_or(Ok(()), check_image_size).map_err(named("image"))?;
        Ok(PoolConfig { name: self.name, folder: self.folder, image, settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Kind;

    #[test]
    fn a_file_names_pools() {
        let text = "
pools:
- name: default
  folder: /var/lib/wharf
  floor: 1048576
- name: fast
  folder: /mnt/nvme
  image: 10Gi
  kinds: [thick, thin]
  thinRatio: 1.5
  thinFloor: 10%
  drain: true
";
        let [default, fast] = &parse(text).expect("a sound file")[..] else { panic!("two pools") };
        assert_eq!(default.settings, PoolSettings { floor: Some(1 << 20), ..Default::default() });
        assert_eq!((&fast.name[..], fast.image), ("fast", Some(10 << 30)));
        assert!(fast.settings.kinds.allow(Kind::Thin) && fast.settings.drain);
        assert_eq!(fast.settings.thin_ratio.of(1000), 1500);
        assert_eq!(fast.settings.thin_floor.of(1000), 100);
    }

    #[test]
    fn mistakes_are_named() {
        for (entries, expected) in [
            ("pools: []", "at least one pool"),
            ("pools: [{name: a}]", "folder"),
            ("pools: [{name: A, folder: /a}]", "pools[0].name: expected a name"),
            ("pools: [{name: a, folder: a}]", "pools[0].folder: expected an absolute path"),
            ("pools: [{name: a, folder: /a, floor: big}]", "pools[0].floor: expected bytes"),
            ("pools: [{name: a, folder: /a, image: 0}]", "pools[0].image: expected at least 300Mi"),
            ("pools: [{name: a, folder: /a, thinRatio: 0}]", "pools[0].thinRatio: expected"),
            ("pools: [{name: a, folder: /a, thinFloor: 200%}]", "pools[0].thinFloor: expected"),
            ("pools: [{name: a, folder: /a, kinds: []}]", "thick, thin or both"),
            ("pools: [{name: a, folder: /a, kind: thin}]", "kind"),
            ("pools: [{name: a, folder: /a}, {name: a, folder: /b}]", "pool a: the name is given"),
            ("pools: [{name: a, folder: /a}, {name: b, folder: /a}]", "pool b: its folder /a"),
            ("pools: [{name: a, folder: /a}, {name: b, folder: //a/./}]", "is another pool's, too"),
            (
                "pools: [{name: a, folder: /a}, {name: b, folder: /a/volumes/b}]",
                "is inside of pool a",
            ),
        ] {
            let refused = parse(entries).expect_err(entries).to_string();
            assert!(refused.contains(expected), "{entries}: {refused}");
        }
    }

    #[test]
    fn a_flag_names_a_pool_or_means_the_default() {
        for (text, name, folder) in [
            ("/var/lib/wharf", "default", "/var/lib/wharf"),
            ("fast=/mnt/nvme", "fast", "/mnt/nvme"),
            ("/mnt/a=b", "default", "/mnt/a=b"),
            ("pool", "default", "pool"),
        ] {
            let flag: PoolFlag = text.parse().expect(text);
            assert_eq!((&flag.name[..], flag.folder), (name, PathBuf::from(folder)), "{text}");
        }
        for text in ["", "fast=", "Fast=/a", "-a=/a", "=/a"] {
            assert!(text.parse::<PoolFlag>().is_err(), "{text}");
        }
    }
}
