//! An object to be explained, and its dependencies.

use std::{fmt, str::FromStr};

use wharf_cluster::{
    Kind, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment, VolumeSnapshot,
    VolumeSnapshotContent,
};

use super::{ClusterSnapshot, Finding, Listed, attachment, claim, content, pod, snapshot, volume};

/// A kind whose objects can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// PersistentVolumeClaims.
    Claim,
    /// PersistentVolumes.
    Volume,
    /// VolumeSnapshots.
    Snapshot,
    /// VolumeSnapshotContents.
    Content,
    /// VolumeAttachments.
    Attachment,
    /// Pods.
    Pod,
}

/// An object to be explained, as `kind/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its kind.
    pub kind: SubjectKind,
    /// Its name.
    pub name: String,
}

/// The kinds with their names: kubectl's and our own.
const KINDS: [(SubjectKind, &[&str]); 6] = [
    (SubjectKind::Claim, &["pvc", "persistentvolumeclaim", "persistentvolumeclaims", "claim"]),
    (SubjectKind::Volume, &["pv", "persistentvolume", "persistentvolumes", "volume"]),
    (SubjectKind::Snapshot, &["vs", "volumesnapshot", "volumesnapshots", "snapshot"]),
    (
        SubjectKind::Content,
        &["vsc", "vscs", "volumesnapshotcontent", "volumesnapshotcontents", "content"],
    ),
    (SubjectKind::Attachment, &["va", "volumeattachment", "volumeattachments", "attachment"]),
    (SubjectKind::Pod, &["pod", "pods", "po"]),
];

impl FromStr for Subject {
    type Err = String;

    /// Like kubectl, accepts kinds in any case, with or without their API group.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = || {
            let names: Vec<_> =
                KINDS.iter().map(|(_, names)| format!("{}/NAME", names[0])).collect();
            format!("expected one of {}", names.join(", "))
        };
        let (kind, name) = text.split_once('/').ok_or_else(known)?;
        let short = kind.split('.').next().unwrap_or_default().to_lowercase();
        let found = KINDS.iter().find(|(_, names)| names.contains(&short.as_str()));
        let (found, _) = found.ok_or_else(|| format!("there is no kind {kind:?}: {}", known()))?;
        if name.is_empty() || name.contains('/') {
            return Err(known());
        }
        Ok(Self { kind: *found, name: name.to_owned() })
    }
}

impl SubjectKind {
    /// Whether its objects are namespaced.
    pub fn is_namespaced(self) -> bool {
        matches!(self, Self::Claim | Self::Snapshot | Self::Pod)
    }
}

impl fmt::Display for SubjectKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Claim => PersistentVolumeClaim::KIND,
            Self::Volume => PersistentVolume::KIND,
            Self::Snapshot => VolumeSnapshot::KIND,
            Self::Content => VolumeSnapshotContent::KIND,
            Self::Attachment => VolumeAttachment::KIND,
            Self::Pod => Pod::KIND,
        })
    }
}

impl ClusterSnapshot {
    /// Findings about an object and all its dependencies, the object first; empty if the object
    /// does not exist. The namespace counts for namespaced kinds.
    pub fn findings_of(&self, subject: &Subject, namespace: &str) -> Vec<Finding> {
        let name = subject.name.as_str();
        let found = match subject.kind {
            SubjectKind::Claim => self.claim(namespace, name).map(|it| self.about_claim(it)),
            SubjectKind::Volume => self.volume(name).map(|it| self.about_volume(it)),
            SubjectKind::Snapshot => {
                self.snapshot(namespace, name).map(|it| self.about_snapshot(it))
            }
            SubjectKind::Content => self.content(name).map(|it| self.about_content(it)),
            SubjectKind::Attachment => self.attachment(name).map(|it| self.about_attachment(it)),
            SubjectKind::Pod => self.pod(namespace, name).map(|it| self.about_pod(it)),
        };
        let mut findings = found.unwrap_or_default();
        let mut seen = Vec::new();
        findings.retain(|it| {
            let of = (it.kind, it.namespace.clone(), it.name.clone());
            let is_new = !seen.contains(&of);
            if is_new {
                seen.push(of);
            }
            is_new
        });
        findings
    }

    /// The claim, the snapshot that it is restored from, its volume and the volume's attachments.
    fn about_claim(&self, claim: &Listed<PersistentVolumeClaim>) -> Vec<Finding> {
        let mut findings = vec![claim::finding(self, claim)];
        if let Some(snapshot) = claim::restored_from(self, claim) {
            findings.push(snapshot::finding(self, snapshot));
        }
        let volume = claim.object.spec.volume_name.as_deref().and_then(|it| self.volume(it));
        if let Some(volume) = volume {
            findings.push(volume::finding(self, volume));
            findings.extend(self.about_attachments(volume));
        }
        findings
    }

    /// The volume, its claim and its attachments.
    fn about_volume(&self, volume: &Listed<PersistentVolume>) -> Vec<Finding> {
        let mut findings = vec![volume::finding(self, volume)];
        findings.extend(self.claim_of(volume).map(|it| claim::finding(self, it)));
        findings.extend(self.about_attachments(volume));
        findings
    }

    /// The snapshot, its content and the claim that it is taken of.
    fn about_snapshot(&self, snapshot: &Listed<VolumeSnapshot>) -> Vec<Finding> {
        let VolumeSnapshot { metadata, spec, .. } = &snapshot.object;
        let mut findings = vec![snapshot::finding(self, snapshot)];
        let given = spec.source.volume_snapshot_content_name.as_deref();
        let content = snapshot.object.bound_content().or(given).and_then(|it| self.content(it));
        findings.extend(content.map(|it| content::finding(self, it)));
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let claim = spec.source.persistent_volume_claim_name.as_deref();
        let claim = claim.and_then(|name| self.claim(namespace, name));
        findings.extend(claim.map(|it| claim::finding(self, it)));
        findings
    }

    /// The content, and the snapshot that it belongs to with the snapshot's claim.
    fn about_content(&self, content: &Listed<VolumeSnapshotContent>) -> Vec<Finding> {
        let mut findings = vec![content::finding(self, content)];
        let of = &content.object.spec.volume_snapshot_ref;
        if let Some(snapshot) = self.snapshot(&of.namespace, &of.name) {
            findings.extend(self.about_snapshot(snapshot));
        }
        findings
    }

    /// The attachment, its volume, the volume's claim and other attachments, and the pods on the
    /// node that use it.
    fn about_attachment(&self, attachment: &Listed<VolumeAttachment>) -> Vec<Finding> {
        let mut findings = vec![attachment::finding(self, attachment)];
        let spec = &attachment.object.spec;
        let volume = spec.source.persistent_volume_name.as_deref().and_then(|it| self.volume(it));
        let Some(volume) = volume else { return findings };
        findings.extend(self.about_volume(volume));
        if let Some(claim) = self.claim_of(volume) {
            let meta = &claim.object.metadata;
            let users = self.users(meta.namespace.as_deref().unwrap_or_default(), &meta.name);
            let here = users.into_iter().filter(|pod| pod["spec"]["nodeName"] == *spec.node_name);
            findings.extend(here.filter_map(|pod| pod::finding(self, pod)));
        }
        findings
    }

    /// The pod, and each of its claims with what that depends on.
    fn about_pod(&self, pod: &serde_json::Value) -> Vec<Finding> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let mut findings: Vec<Finding> = pod::finding(self, pod).into_iter().collect();
        let claims = pod::claims(pod);
        let claims = claims.filter_map(|name| self.claim(namespace, &name));
        findings.extend(claims.flat_map(|it| self.about_claim(it)));
        findings
    }

    fn about_attachments(
        &self,
        volume: &Listed<PersistentVolume>,
    ) -> impl Iterator<Item = Finding> {
        let attachments = self.attachments_of(&volume.object.metadata.name);
        attachments.map(|it| attachment::finding(self, it))
    }

    fn claim_of(
        &self,
        volume: &Listed<PersistentVolume>,
    ) -> Option<&Listed<PersistentVolumeClaim>> {
        let of = volume.object.spec.claim_ref.as_deref()?;
        let claim = self.claim(&of.namespace, &of.name)?;
        (of.uid.is_empty() || claim.object.metadata.uid == of.uid).then_some(claim)
    }
}

#[cfg(test)]
mod tests;
