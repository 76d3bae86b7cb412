//! How secret fields are printed: with their keys, without their values.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};

/// Key under which the kubelet hands service account tokens to a driver that asked for them.
const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// A secret: printed without being told.
pub(crate) struct Secret<'a, T>(pub(crate) &'a T);

impl<T: Strip> Debug for Secret<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt_stripped(f)
    }
}

/// A volume context: printed whole, but for service account tokens.
pub(crate) struct VolumeContext<'a>(pub(crate) &'a BTreeMap<String, String>);

impl Debug for VolumeContext<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (key, value) in self.0 {
            if key == TOKENS_KEY {
                map.entry(key, &Stripped)
            } else {
                map.entry(key, value)
            };
        }
        map.finish()
    }
}

/// What stands in place of a secret.
struct Stripped;

impl Debug for Stripped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("***stripped***")
    }
}

/// Types that a secret field can have. Whether a value is empty, and the keys of a map, may be told.
pub(crate) trait Strip {
    fn fmt_stripped(&self, f: &mut Formatter<'_>) -> fmt::Result;
}

impl Strip for String {
    fn fmt_stripped(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() { f.write_str("\"\"") } else { Stripped.fmt(f) }
    }
}

impl Strip for Vec<u8> {
    fn fmt_stripped(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() { f.write_str("[]") } else { Stripped.fmt(f) }
    }
}

impl Strip for Vec<String> {
    fn fmt_stripped(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|_| Stripped)).finish()
    }
}

impl Strip for BTreeMap<String, String> {
    fn fmt_stripped(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.keys().map(|key| (key, Stripped))).finish()
    }
}
