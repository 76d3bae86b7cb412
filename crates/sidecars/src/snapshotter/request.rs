//! Builds the driver's requests from objects.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wharf_cluster::{SecretReference, VolumeSnapshotClass, VolumeSnapshotContent};
use wharf_facts::annotation;
use wharf_proto::csi::{CreateSnapshotRequest, Snapshot};

use super::failure::{ContentRefusal, Failure};
use crate::snapshot_class::{driver_parameters, metadata_parameters};

/// How snapshots are named in the driver: a prefix, and the UID of the VolumeSnapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotNames {
    /// The prefix.
    pub prefix: String,
    /// The length of the part of the UID, without dashes; `None` for the whole UID with dashes.
    pub uid_length: Option<usize>,
}

impl Default for SnapshotNames {
    fn default() -> Self {
        Self { prefix: "snapshot".to_owned(), uid_length: None }
    }
}

impl SnapshotNames {
    /// The name for the VolumeSnapshot with this UID. It never changes, so that a repeated call
    /// takes no second snapshot.
    fn name(&self, uid: &str) -> String {
        let uid = match self.uid_length {
            None => uid.to_owned(),
            Some(length) => uid.chars().filter(|char| *char != '-').take(length).collect(),
        };
        format!("{}-{uid}", self.prefix)
    }
}

/// The CreateSnapshot request, without secrets.
pub(super) fn create(
    content: &VolumeSnapshotContent,
    class: &VolumeSnapshotClass,
    names: &SnapshotNames,
    metadata: bool,
) -> Result<CreateSnapshotRequest, Failure> {
    let snapshot = &content.spec.volume_snapshot_ref;
    if snapshot.uid.is_empty() {
        return Err(Failure::Unbound(content.metadata.name.clone()));
    }
    let mut parameters = driver_parameters(&class.parameters)?;
    if metadata {
        let content = &content.metadata.name;
        parameters.extend(metadata_parameters(&snapshot.namespace, &snapshot.name, content));
    }
    Ok(CreateSnapshotRequest {
        source_volume_id: content.spec.source.volume_handle.clone().unwrap_or_default(),
        name: names.name(&snapshot.uid),
        parameters,
        ..CreateSnapshotRequest::default()
    })
}

/// The secret that the snapshot controller resolved for a content.
pub(super) fn secret(
    content: &VolumeSnapshotContent,
) -> Result<Option<SecretReference>, ContentRefusal> {
    let annotations = &content.metadata.annotations;
    let name = annotations.get(annotation::SNAPSHOT_DELETION_SECRET_NAME);
    let namespace = annotations.get(annotation::SNAPSHOT_DELETION_SECRET_NAMESPACE);
    match name.zip(namespace) {
        None => Ok(None),
        Some(("", _) | (_, "")) => {
            Err(ContentRefusal::EmptySecretName(content.metadata.name.clone()))
        }
        Some((name, namespace)) => {
            Ok(Some(SecretReference { name: name.to_owned(), namespace: namespace.to_owned() }))
        }
    }
}

/// The driver's answer about a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) handle: String,
    /// In nanoseconds since 1970.
    pub(super) time: i64,
    /// 0 if the driver does not report it.
    pub(super) size: i64,
    pub(super) ready: bool,
    pub(super) group: Option<String>,
}

impl Taken {
    /// Converts a driver's answer. Without a creation time the time is now.
    pub(super) fn of(snapshot: Snapshot, now: SystemTime) -> Self {
        let time = snapshot.creation_time.map(|time| {
            time.seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanos))
        });
        Self {
            handle: snapshot.snapshot_id,
            time: time.unwrap_or_else(|| nanoseconds(now)),
            size: snapshot.size_bytes,
            ready: snapshot.ready_to_use,
            group: Some(snapshot.group_snapshot_id).filter(|group| !group.is_empty()),
        }
    }

    /// For a driver without ListSnapshots: the snapshot is assumed to exist.
    pub(super) fn believed(handle: &str, now: SystemTime) -> Self {
        Self {
            handle: handle.to_owned(),
            time: nanoseconds(now),
            size: 0,
            ready: true,
            group: None,
        }
    }
}

fn nanoseconds(time: SystemTime) -> i64 {
    let since: Duration = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn content() -> VolumeSnapshotContent {
        serde_json::from_value(json!({
            "metadata": { "name": "c" },
            "spec": {
                "source": { "volumeHandle": "v" },
                "volumeSnapshotRef": { "uid": "1-2-3", "name": "s", "namespace": "ns" },
            },
        }))
        .unwrap()
    }

    #[test]
    fn names_follow_the_uid() {
        let names = |uid_length| SnapshotNames { prefix: "p".to_owned(), uid_length };
        assert_eq!(names(None).name("1-2-3"), "p-1-2-3");
        assert_eq!(names(Some(2)).name("1-2-3"), "p-12");
        assert_eq!(names(Some(9)).name("1-2-3"), "p-123");
    }

    #[test]
    fn drivers_that_ask_for_it_are_told_names() {
        let class = VolumeSnapshotClass {
            parameters: [("a", "b")].into_iter().collect(),
            ..VolumeSnapshotClass::default()
        };
        let names = SnapshotNames::default();
        let call = create(&content(), &class, &names, false).unwrap();
        assert_eq!((call.name.as_str(), call.source_volume_id.as_str()), ("snapshot-1-2-3", "v"));
        assert_eq!(call.parameters.len(), 1);
        let told = create(&content(), &class, &names, true).unwrap().parameters;
        assert_eq!(told["csi.storage.k8s.io/volumesnapshot/name"], "s");
        assert_eq!(told["csi.storage.k8s.io/volumesnapshot/namespace"], "ns");
        assert_eq!(told["csi.storage.k8s.io/volumesnapshotcontent/name"], "c");
        let mut unbound = content();
        unbound.spec.volume_snapshot_ref.uid.clear();
        assert!(matches!(create(&unbound, &class, &names, false), Err(Failure::Unbound(_))));
    }

    #[test]
    fn half_a_secret_is_none_and_an_empty_one_an_error() {
        let with = |pairs: &[(&'static str, &'static str)]| {
            let mut content = content();
            content.metadata.annotations = pairs.iter().copied().collect();
            secret(&content)
        };
        let (name, namespace) = (
            annotation::SNAPSHOT_DELETION_SECRET_NAME,
            annotation::SNAPSHOT_DELETION_SECRET_NAMESPACE,
        );
        assert!(with(&[(name, "a")]).unwrap().is_none());
        let found = with(&[(name, "a"), (namespace, "b")]).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.namespace.as_str()), ("a", "b"));
        assert!(with(&[(name, "a"), (namespace, "")]).is_err());
    }

    #[test]
    fn an_answer_without_a_time_is_of_now() {
        let now = UNIX_EPOCH + Duration::from_nanos(7);
        let taken = Taken::of(Snapshot { snapshot_id: "h".to_owned(), ..Snapshot::default() }, now);
        assert_eq!((taken.time, taken.ready, taken.group), (7, false, None));
        assert!(Taken::believed("h", now).ready);
    }
}
