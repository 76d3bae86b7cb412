use serde::Deserialize;

use super::{Kind, Meta};

/// A Node, of which only the labels are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// The metadata.
    pub metadata: Meta,
}

impl Kind for Node {
    const KIND: &'static str = "Node";
    const GROUP: &'static str = "/api/v1";
    const RESOURCE: &'static str = "nodes";

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
