//! Maps the access modes of a PersistentVolume to an access mode of CSI.

use std::collections::BTreeSet;

/// CSI's access modes that Kubernetes uses, with their protobuf numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum AccessMode {
    /// `SINGLE_NODE_WRITER`
    SingleNodeWriter = 1,
    /// `MULTI_NODE_READER_ONLY`
    MultiNodeReaderOnly = 3,
    /// `MULTI_NODE_MULTI_WRITER`
    MultiNodeMultiWriter = 5,
    /// `SINGLE_NODE_SINGLE_WRITER`
    SingleNodeSingleWriter = 6,
    /// `SINGLE_NODE_MULTI_WRITER`
    SingleNodeMultiWriter = 7,
}

/// Access modes without a counterpart in CSI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessModeError {
    /// `ReadWriteOncePod` together with another mode.
    #[error(
        "Kubernetes does not support use of ReadWriteOncePod with other access modes on the same PersistentVolume"
    )]
    OncePodWithOthers,
    /// `ReadOnlyMany` together with `ReadWriteOnce`.
    #[error("CSI does not support ReadOnlyMany and ReadWriteOnce on the same PersistentVolume")]
    ReadersAndWriter,
    /// No mode, or no known one.
    #[error("unsupported AccessMode combination: [{}]", .0.join(" "))]
    Unsupported(Vec<String>),
}

/// The CSI access mode for `modes`. Only drivers with the capability `SINGLE_NODE_MULTI_WRITER` get
/// the modes that distinguish one pod from several on a node.
pub fn csi_access_mode<S: AsRef<str>>(
    modes: &[S],
    single_node_multi_writer: bool,
) -> Result<AccessMode, AccessModeError> {
    let unique: BTreeSet<&str> = modes.iter().map(AsRef::as_ref).collect();
    let has = |mode| unique.contains(mode);
    let capable = |fine, coarse| Ok(if single_node_multi_writer { fine } else { coarse });
    if has("ReadWriteOncePod") {
        if unique.len() > 1 {
            return Err(AccessModeError::OncePodWithOthers);
        }
        return capable(AccessMode::SingleNodeSingleWriter, AccessMode::SingleNodeWriter);
    }
    match (has("ReadWriteMany"), has("ReadOnlyMany"), has("ReadWriteOnce")) {
        (true, _, _) => Ok(AccessMode::MultiNodeMultiWriter),
        (false, true, true) => Err(AccessModeError::ReadersAndWriter),
        (false, true, false) => Ok(AccessMode::MultiNodeReaderOnly),
        (false, false, true) => {
            capable(AccessMode::SingleNodeMultiWriter, AccessMode::SingleNodeWriter)
        }
        (false, false, false) => Err(AccessModeError::Unsupported(
            modes.iter().map(|mode| mode.as_ref().to_owned()).collect(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{AccessMode::*, *};

    #[test]
    fn access_modes_map_as_upstream_maps_them() {
        let cases: &[(&[&str], AccessMode, AccessMode)] = &[
            (&["ReadWriteMany"], MultiNodeMultiWriter, MultiNodeMultiWriter),
            (&["ReadWriteOnce", "ReadWriteMany"], MultiNodeMultiWriter, MultiNodeMultiWriter),
            (
                &["ReadOnlyMany", "ReadWriteOnce", "ReadWriteMany"],
                MultiNodeMultiWriter,
                MultiNodeMultiWriter,
            ),
            (&["ReadOnlyMany", "ReadOnlyMany"], MultiNodeReaderOnly, MultiNodeReaderOnly),
            (&["ReadWriteOnce"], SingleNodeWriter, SingleNodeMultiWriter),
            (&["ReadWriteOncePod"], SingleNodeWriter, SingleNodeSingleWriter),
        ];
        for (modes, coarse, fine) in cases {
            assert_eq!(csi_access_mode(modes, false), Ok(*coarse), "{modes:?}");
            assert_eq!(csi_access_mode(modes, true), Ok(*fine), "{modes:?}");
        }
    }

    #[test]
    fn impossible_combinations_are_refused_in_upstreams_words() {
        for (modes, expected) in [
            (
                &["ReadWriteOncePod", "ReadWriteMany"][..],
                "Kubernetes does not support use of ReadWriteOncePod",
            ),
            (
                &["ReadOnlyMany", "ReadWriteOnce"],
                "CSI does not support ReadOnlyMany and ReadWriteOnce",
            ),
            (&[], "unsupported AccessMode combination: []"),
            (&["ReadWriteTwice", "x"], "unsupported AccessMode combination: [ReadWriteTwice x]"),
        ] {
            for capable in [false, true] {
                let error = csi_access_mode(modes, capable).unwrap_err().to_string();
                assert!(error.starts_with(expected), "{modes:?}: {error}");
            }
        }
    }
}
