//! Prints secret fields with their keys but without their values.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug, Formatter},
};

/// Key of the service account tokens that the kubelet passes to a driver that requests them.
const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Wrapper that hides a secret.
pub(crate) struct Secret<'a, T>(pub(crate) &'a T);

impl<T: Strip> Debug for Secret<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt_stripped(f)
    }
}

/// Wrapper that prints a volume context without the service account tokens.
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

/// Placeholder of a secret.
struct Stripped;

impl Debug for Stripped {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("***stripped***")
    }
}

/// Types of secret fields. Emptiness and the keys of a map may be printed.
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

#[cfg(test)]
mod tests;
