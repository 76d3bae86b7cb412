use serde::Deserialize;

use super::{Kind, Meta};

/// A node; what is read of it are its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its metadata.
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
