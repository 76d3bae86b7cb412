//! Parameters of a StorageClass, or of an inline volume's context.

use wharf_csi_sdk::types::{AccessMode, Capability, Parameters};
use wharf_facts::{context, quantity};
use wharf_mount::Filesystem;

use super::usage;
use crate::{backend::BackendKind, config::check_name, error::Error};

/// Field of an inline volume's parameters.
const INLINE: &str = "volume_context";

/// Parsed parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Class {
    /// Name of the pool; `None` means the default.
    pub(super) pool: Option<String>,
    pub(super) backend: Option<BackendKind>,
    pub(super) thin: bool,
    pub(super) filesystem: Option<Filesystem>,
    /// Size; only for inline volumes.
    pub(super) size: Option<u64>,
}

impl Class {
    /// Parses a StorageClass's parameters.
    pub(super) fn of_volume(parameters: &Parameters) -> Result<Self, Error> {
        let class = Self::read(parameters, "parameters")?;
        if class.size.is_some() {
            return Err(unknown("parameters", "size"));
        }
        Ok(class)
    }

    /// Parses the context of an inline volume.
    pub(super) fn of_inline(context: &Parameters) -> Result<Self, Error> {
        Self::read(context, INLINE)
    }

    fn read(parameters: &Parameters, map: &str) -> Result<Self, Error> {
        let mut class = Self::default();
        for (key, value) in parameters {
            let wrong = |expected: &str| Error::invalid(format!("{map}.{key}"), expected);
            match key.as_str() {
                "pool" => {
                    check_name(value)
                        .map_err(|expected| wrong(expected.trim_start_matches("expected ")))?;
                    class.pool = Some(value.clone());
                }
                "backend" => {
                    class.backend =
                        Some(value.parse().map_err(|_| wrong("image-reflink or image-copy"))?);
                }
                "thin" => class.thin = value.parse().map_err(|_| wrong("true or false"))?,
                context::FS_TYPE => {
                    class.filesystem = Some(value.parse().map_err(|_| wrong("ext4 or xfs"))?);
                }
                "size" => {
                    let size =
                        quantity::parse(value).ok().and_then(|size| u64::try_from(size).ok());
                    let size = size.filter(|size| *size > 0);
                    class.size =
                        Some(size.ok_or_else(|| wrong("bytes, or a size such as 64Mi or 2Gi"))?);
                }
                // Facts about the claim and the pod, which Kubernetes adds.
                key if key.starts_with(context::PREFIX) => {}
                key => return Err(unknown(map, key)),
            }
        }
        Ok(class)
    }
}

/// Refuses capabilities that a volume on one node cannot support.
pub(super) fn refuse_unsupported(capabilities: &[Capability]) -> Result<(), Error> {
    capabilities.iter().try_for_each(|capability| match unsupported(capability) {
        Some(expected) => Err(Error::invalid("volume_capability", expected)),
        None => Ok(()),
    })
}

/// Returns what is expected instead of this capability, if it is not supported.
pub(super) fn unsupported(capability: &Capability) -> Option<String> {
    use AccessMode::{MultiNodeMultiWriter, MultiNodeSingleWriter};
    if matches!(capability.mode, MultiNodeSingleWriter | MultiNodeMultiWriter) {
        let expected =
            "an access mode of one node, or one that only reads: local volumes are on one node";
        return Some(expected.to_owned());
    }
    usage(capability.clone()).filesystem().err().map(|_| "fs_type ext4, xfs or nothing".to_owned())
}

fn unknown(map: &str, key: &str) -> Error {
    let known = match map {
        INLINE => "one of size, pool, backend, thin and csi.storage.k8s.io/fstype",
        _ => "one of pool, backend, thin and csi.storage.k8s.io/fstype",
    };
    Error::invalid(format!("{map}.{key}"), known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> Parameters {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn known_keys_and_metadata_are_taken() {
        let class = Class::of_volume(&map(&[
            ("pool", "fast"),
            ("backend", "image-copy"),
            ("thin", "true"),
            ("csi.storage.k8s.io/fstype", "xfs"),
            ("csi.storage.k8s.io/pvc/name", "claim"),
        ]));
        let expected = Class {
            pool: Some("fast".to_owned()),
            backend: Some(BackendKind::ImageCopy),
            thin: true,
            filesystem: Some(Filesystem::Xfs),
            size: None,
        };
        assert_eq!(class.expect("all known"), expected);
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        for (key, value) in [
            ("Thin", "true"),
            ("thin", "yes"),
            ("backend", "lvm"),
            ("pool", "Fast/"),
            ("size", "1Gi"),
            ("csi.storage.k8s.io/fstype", "btrfs"),
        ] {
            let refused = Class::of_volume(&map(&[(key, value)])).expect_err(key).to_string();
            assert!(refused.starts_with(&format!("parameters.{key}: expected ")), "{refused}");
        }
    }

    #[test]
    fn inline_sizes_are_quantities() {
        for (text, size) in [("4096", Some(4096)), ("64Mi", Some(64 << 20)), ("2Gi", Some(2 << 30))]
        {
            assert_eq!(Class::of_inline(&map(&[("size", text)])).expect(text).size, size);
        }
        for text in ["", "0", "-1", "1GiB", "Mi", "99999999999Ti"] {
            assert!(Class::of_inline(&map(&[("size", text)])).is_err(), "{text}");
        }
    }
}
