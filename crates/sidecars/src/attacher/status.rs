//! Builds the patches of VolumeAttachments.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use wharf_cluster::{Patch, VolumeAttachment};
use wharf_facts::annotation;

use super::{failure::Failure, request::AttachedVolume};

/// The API refuses longer messages, and with them the whole error.
const MAX_MESSAGE: usize = 1024;

/// Data for a detach that is noted on the attachment, because the objects that contain it may be
/// gone by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DetachNotes {
    pub(super) node_id: String,
    /// `None` for an inline volume.
    pub(super) volume: Option<AttachedVolume>,
}

impl DetachNotes {
    fn annotations(&self) -> [(&'static str, Option<String>); 3] {
        let volume = self.volume.as_ref();
        let secret = volume.and_then(|it| it.secret.as_ref());
        [
            (annotation::ATTACHMENT_NODE_ID, Some(self.node_id.clone())),
            (annotation::ATTACHMENT_VOLUME_HANDLE, volume.map(|it| it.handle.clone())),
            (
                annotation::ATTACHMENT_SECRET,
                secret.map(|it| format!("{}/{}", it.namespace, it.name)),
            ),
        ]
    }
}

/// Marks an attachment before the ControllerPublishVolume call: the finalizer keeps it until the
/// volume is detached, and the notes hold the data for that. `None` if it is marked already.
pub(super) fn prepare(
    attachment: &VolumeAttachment,
    finalizer: &str,
    notes: &DetachNotes,
) -> Option<Patch> {
    let metadata = &attachment.metadata;
    let mut fields = Map::new();
    if !metadata.has_finalizer(finalizer) {
        let mut finalizers = metadata.finalizers.to_vec();
        finalizers.push(finalizer.into());
        fields.insert("finalizers".to_owned(), json!(finalizers));
    }
    let wanted = notes.annotations().into_iter();
    let changed = wanted.filter(|(key, value)| metadata.annotations.get(key) != value.as_deref());
    let annotations: Map<String, Value> =
        changed.map(|(key, value)| (key.to_owned(), json!(value))).collect();
    if !annotations.is_empty() {
        fields.insert("annotations".to_owned(), Value::Object(annotations));
    }
    (!fields.is_empty()).then(|| Patch::metadata(metadata, Value::Object(fields)))
}

/// Removes finalizer and notes. `None` if there are none.
pub(super) fn release(attachment: &VolumeAttachment, finalizer: &str) -> Option<Patch> {
    let metadata = &attachment.metadata;
    if !metadata.has_finalizer(finalizer) {
        return None;
    }
    let others: Vec<_> = metadata.finalizers.iter().filter(|own| **own != *finalizer).collect();
    let others = if others.is_empty() { Value::Null } else { json!(others) };
    Some(Patch::metadata(metadata, json!({ "finalizers": others })))
}

/// Marks the attachment as attached, with the driver's publish context.
pub(super) fn attached(
    attachment: &VolumeAttachment,
    published: &BTreeMap<String, String>,
) -> Patch {
    let mut status = json!({ "attached": true, "attachError": null });
    let stale = attachment.status.attachment_metadata.iter();
    let mut metadata: Map<String, Value> =
        stale.map(|(key, _)| (key.to_owned(), Value::Null)).collect();
    metadata.extend(published.iter().map(|(key, value)| (key.clone(), json!(value))));
    if published.is_empty() && !metadata.is_empty() {
        status["attachmentMetadata"] = Value::Null;
    } else if !metadata.is_empty() {
        status["attachmentMetadata"] = Value::Object(metadata);
    }
    Patch::status(&attachment.metadata, &status)
}

/// Marks the attachment as detached.
pub(super) fn detached(attachment: &VolumeAttachment) -> Patch {
    let status = json!({ "attached": false, "detachError": null, "attachmentMetadata": null });
    Patch::status(&attachment.metadata, &status)
}

/// Records a failed attach.
pub(super) fn attach_error(
    attachment: &VolumeAttachment,
    failure: &Failure,
    now: Timestamp,
) -> Patch {
    // A merge patch keeps the code of an earlier error unless it is set to null.
    let mut error = error(failure, now);
    error["errorCode"] = json!(failure.code());
    Patch::status(&attachment.metadata, &json!({ "attachError": error }))
}

/// Records a failed detach.
pub(super) fn detach_error(
    attachment: &VolumeAttachment,
    failure: &Failure,
    now: Timestamp,
) -> Patch {
    Patch::status(&attachment.metadata, &json!({ "detachError": error(failure, now) }))
}

fn error(failure: &Failure, now: Timestamp) -> Value {
    let mut message = failure.to_string();
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    }
    json!({ "message": message, "time": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() })
}

#[cfg(test)]
mod tests {
    use tonic::Status;
    use wharf_cluster::{Meta, SecretReference};

    use super::*;

    const OURS: &str = "external-attacher/a";

    fn attachment(finalizers: &[&str], metadata: &[&str]) -> VolumeAttachment {
        let mut attachment = VolumeAttachment::default();
        attachment.metadata.uid = "u".to_owned();
        attachment.metadata.resource_version = "7".to_owned();
        attachment.metadata.finalizers = finalizers.iter().map(|&it| it.into()).collect();
        attachment.status.attachment_metadata = metadata.iter().map(|&key| (key, "old")).collect();
        attachment
    }

    fn merged(patch: Patch) -> Value {
        let Patch::Merge(body) = patch else { panic!("{patch:?}") };
        body
    }

    fn notes(node_id: &str, secret: Option<&str>) -> DetachNotes {
        let secret = secret
            .map(|name| SecretReference { name: name.to_owned(), namespace: "space".to_owned() });
        let volume = Some(AttachedVolume { handle: "v".to_owned(), secret });
        DetachNotes { node_id: node_id.to_owned(), volume }
    }

    #[test]
    fn an_attachment_is_marked_once() {
        let mut marked = attachment(&["other"], &[]);
        let body = merged(prepare(&marked, OURS, &notes("n", Some("key"))).unwrap());
        let annotations = json!({
            annotation::ATTACHMENT_NODE_ID: "n",
            annotation::ATTACHMENT_VOLUME_HANDLE: "v",
            annotation::ATTACHMENT_SECRET: "space/key",
        });
        let finalizers = json!(["other", OURS]);
        assert_eq!(body["metadata"]["finalizers"], finalizers);
        assert_eq!(body["metadata"]["annotations"], annotations);
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        marked.metadata.finalizers = Box::new([OURS.into()]);
        marked.metadata.annotations =
            serde_json::from_value::<Meta>(json!({ "annotations": annotations }))
                .unwrap()
                .annotations;
        assert_eq!(prepare(&marked, OURS, &notes("n", Some("key"))), None);
        let moved = merged(prepare(&marked, OURS, &notes("m", None)).unwrap());
        assert_eq!(moved["metadata"]["finalizers"], Value::Null);
        let annotations =
            json!({ annotation::ATTACHMENT_NODE_ID: "m", annotation::ATTACHMENT_SECRET: null });
        assert_eq!(moved["metadata"]["annotations"], annotations);
    }

    #[test]
    fn others_keep_their_finalizers() {
        let body = merged(release(&attachment(&["a", OURS, "b"], &[]), OURS).unwrap());
        assert_eq!(body["metadata"]["finalizers"], json!(["a", "b"]));
        assert_eq!(release(&attachment(&["a"], &[]), OURS), None);
    }

    #[test]
    fn what_the_driver_said_replaces_what_it_said_before() {
        let said =
            |keys: &[&str]| keys.iter().map(|&it| (it.to_owned(), "new".to_owned())).collect();
        let status = |old: &[&str], new: &[&str]| {
            merged(attached(&attachment(&[], old), &said(new)))["status"].clone()
        };
        assert_eq!(status(&[], &[]), json!({ "attached": true, "attachError": null }));
        let metadata = |old: &[&str], new: &[&str]| status(old, new)["attachmentMetadata"].clone();
        assert_eq!(
            metadata(&["a", "b"], &["b", "c"]),
            json!({ "a": null, "b": "new", "c": "new" })
        );
        assert_eq!(metadata(&["a"], &[]), Value::Null);
        assert!(status(&["a"], &[]).as_object().unwrap().contains_key("attachmentMetadata"));
    }

    #[test]
    fn errors_carry_the_code_of_the_driver_and_fit() {
        let now = Timestamp::UNIX_EPOCH;
        let failure = Failure::from(Status::resource_exhausted("full"));
        let body = merged(attach_error(&attachment(&[], &[]), &failure, now));
        let message = "rpc error: code = ResourceExhausted desc = full";
        let expected =
            json!({ "message": message, "time": "1970-01-01T00:00:00Z", "errorCode": 8 });
        assert_eq!(body["status"]["attachError"], expected);
        let long = Failure::from(Status::internal("ü".repeat(2000)));
        let body = merged(detach_error(&attachment(&[], &[]), &long, now));
        let text = body["status"]["detachError"]["message"].as_str().unwrap();
        assert!((MAX_MESSAGE - 1..=MAX_MESSAGE).contains(&text.len()), "{}", text.len());
    }
}
