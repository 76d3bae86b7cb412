//! Sharing state of an image's blocks.

use serde::{Deserialize, Serialize};

/// Sharing state of an image's blocks. Records of older versions have none: their images may share
/// blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocks {
    /// The image may share blocks with others of its family.
    #[default]
    Shared,
    /// The image is being unshared; a reserve file has the blocks that it still needs.
    Unsharing {
        /// Bytes that were shared at the beginning.
        bytes: u64,
    },
    /// The image shared blocks earlier and now has its own.
    Own,
}

impl Blocks {
    /// Whether the image is still getting blocks of its own.
    pub fn is_unsharing(self) -> bool {
        matches!(self, Self::Unsharing { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Snapshot, Volume, fixtures},
        *,
    };

    #[test]
    fn records_of_older_versions_may_share_blocks() {
        let volume = fixtures::volume("v", 1);
        let old = |record: serde_json::Value| {
            let mut record = record;
            record.as_object_mut().expect("an object").remove("blocks").expect("the field");
            record
        };
        let snapshot = serde_json::to_value(fixtures::snapshot("s", &volume)).expect("a record");
        let volume = serde_json::to_value(volume).expect("a record");
        let volume: Volume = serde_json::from_value(old(volume)).expect("an old record");
        let snapshot: Snapshot = serde_json::from_value(old(snapshot)).expect("an old record");
        assert_eq!((volume.blocks, snapshot.blocks), (Blocks::Shared, Blocks::Shared));
    }
}
