use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use wharf_facts::annotation;

use super::{Attributes, InternedStr};

/// The metadata that controllers read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The object's name.
    pub name: String,
    /// The namespace of a namespaced object.
    pub namespace: Option<String>,
    /// The UID: distinguishes objects that had the same name.
    pub uid: String,
    /// The resource version.
    pub resource_version: String,
    /// Whether the object is being deleted and waits for its finalizers.
    #[serde(rename = "deletionTimestamp", deserialize_with = "presence")]
    pub deleting: bool,
    /// The finalizers.
    pub finalizers: Box<[InternedStr]>,
    /// The annotations that some controller reads; an object may have 256 KiB of others.
    #[serde(deserialize_with = "read_annotations")]
    pub annotations: Attributes,
    /// The labels; a cache drops those that no controller reads.
    pub labels: Attributes,
}

impl Meta {
    /// The object's key: `name`, or `namespace/name`.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }

    /// Whether the finalizer is set.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|own| *own == *finalizer)
    }

    /// The resource version as a number: versions of one kind are ordered. `None` for a server that
    /// numbers otherwise.
    pub fn version(&self) -> Option<u64> {
        self.resource_version.parse().ok()
    }
}

/// The annotations to keep.
const READ: &[&str] = &[
    annotation::ATTACHMENT_NODE_ID,
    annotation::ATTACHMENT_VOLUME_HANDLE,
    annotation::ATTACHMENT_SECRET,
    annotation::MIGRATED_TO,
    annotation::STORAGE_PROVISIONER,
    annotation::STORAGE_PROVISIONER_BETA,
    annotation::STORAGE_CLASS_BETA,
    annotation::SELECTED_NODE,
    annotation::UNSETTLED_VOLUME,
    annotation::STORAGE_RESIZER,
    annotation::NODE_EXPANSION_NOT_REQUIRED,
    annotation::PROVISIONED_BY,
    annotation::DELETION_SECRET_NAME,
    annotation::DELETION_SECRET_NAMESPACE,
    annotation::MODIFY_SECRET_NAME,
    annotation::MODIFY_SECRET_NAMESPACE,
    annotation::PRE_RESIZE_CAPACITY,
    annotation::DEFAULT_SNAPSHOT_CLASS,
    annotation::ALLOW_VOLUME_MODE_CHANGE,
    annotation::SNAPSHOT_BEING_CREATED,
    annotation::SNAPSHOT_BEING_DELETED,
    annotation::SNAPSHOT_DELETION_SECRET_NAME,
    annotation::SNAPSHOT_DELETION_SECRET_NAMESPACE,
    annotation::GROUP_SNAPSHOT_HANDLE,
];

pub(super) fn presence<'de, D: Deserializer<'de>>(source: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(source)?.is_some())
}

/// Decodes a list that Go writes as null when it is empty.
pub(super) fn list<'de, D, T>(source: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(source)?.unwrap_or_default())
}

fn read_annotations<'de, D: Deserializer<'de>>(source: D) -> Result<Attributes, D::Error> {
    source.deserialize_any(ReadAnnotations)
}

struct ReadAnnotations;

impl<'de> Visitor<'de> for ReadAnnotations {
    type Value = Attributes;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("annotations")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Attributes::default())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut source: M) -> Result<Self::Value, M::Error> {
        let mut kept = Vec::<(InternedStr, InternedStr)>::new();
        while let Some(key) = source.next_key::<Cow<'de, str>>()? {
            if READ.contains(&&*key) {
                kept.push(((&*key).into(), source.next_value()?));
            } else {
                source.next_value::<IgnoredAny>()?;
            }
        }
        Ok(kept.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_reads_is_not_kept() {
        let meta: Meta = serde_json::from_value(json!({
            "name": "a",
            "namespace": "b",
            "resourceVersion": "17",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{ "manager": "kubectl" }],
            "annotations": { "big": "x".repeat(1000), annotation::ATTACHMENT_NODE_ID: "n" },
        }))
        .unwrap();
        assert_eq!(meta.key(), "b/a");
        assert_eq!(meta.version(), Some(17));
        assert!(meta.deleting);
        let kept = Attributes::from_iter([(annotation::ATTACHMENT_NODE_ID, "n")]);
        assert_eq!(meta.annotations, kept);
    }

    #[test]
    fn nulls_are_nothing() {
        let meta: Meta = serde_json::from_str(
            r#"{"name":"a","deletionTimestamp":null,"annotations":null,"resourceVersion":"x"}"#,
        )
        .unwrap();
        assert!(!meta.deleting);
        assert!(meta.annotations.is_empty());
        assert_eq!(meta.version(), None);
    }
}
