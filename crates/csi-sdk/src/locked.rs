//! The keys that each request claims: the [table of locks](crate#locks) in code.

use crate::{
    locks::{Claims, Key, Share},
    request::{
        ControllerExpandVolume, ControllerModifyVolume, ControllerPublishVolume,
        ControllerUnpublishVolume, CreateSnapshot, CreateVolume, CreateVolumeGroupSnapshot,
        DeleteSnapshot, DeleteVolume, DeleteVolumeGroupSnapshot, NodeExpandVolume,
        NodePublishVolume, NodeStageVolume, NodeUnpublishVolume, NodeUnstageVolume,
    },
    types::{ContentSource, VolumeId},
};

/// A request that runs under locks.
pub(crate) trait Locked {
    fn claims(&self) -> Claims;
}

impl Locked for CreateVolume {
    fn claims(&self) -> Claims {
        let claims = Claims::default().exclusive(Key::VolumeName(self.name.clone()));
        match &self.source {
            None => claims,
            Some(ContentSource::Volume(id)) => claims.shared(Key::Volume(id.clone())),
            Some(ContentSource::Snapshot(id)) => claims.shared(Key::Snapshot(id.clone())),
        }
    }
}

impl Locked for ControllerPublishVolume {
    fn claims(&self) -> Claims {
        let several = self.capability.mode.is_multi_node();
        Claims::default()
            .shared(Key::Volume(self.volume.clone()))
            .and(Key::Attachments(self.volume.clone()), shared_if(several))
            .exclusive(Key::Attachment(self.volume.clone(), self.node.clone()))
    }
}

impl Locked for ControllerUnpublishVolume {
    fn claims(&self) -> Claims {
        let claims = Claims::default()
            .shared(Key::Volume(self.volume.clone()))
            .and(Key::Attachments(self.volume.clone()), shared_if(self.node.is_some()));
        match &self.node {
            Some(node) => claims.exclusive(Key::Attachment(self.volume.clone(), node.clone())),
            None => claims,
        }
    }
}

impl Locked for NodePublishVolume {
    fn claims(&self) -> Claims {
        let several = self.capability.mode.is_multi_target();
        Claims::default()
            .shared(Key::Volume(self.volume.clone()))
            .and(Key::Targets(self.volume.clone()), shared_if(several))
            .exclusive(Key::Target(self.volume.clone(), self.target_path.clone()))
    }
}

impl Locked for NodeUnpublishVolume {
    fn claims(&self) -> Claims {
        Claims::default()
            .shared(Key::Volume(self.volume.clone()))
            .shared(Key::Targets(self.volume.clone()))
            .exclusive(Key::Target(self.volume.clone(), self.target_path.clone()))
    }
}

impl Locked for CreateSnapshot {
    fn claims(&self) -> Claims {
        whole(&self.source).exclusive(Key::SnapshotName(self.name.clone()))
    }
}

impl Locked for DeleteSnapshot {
    fn claims(&self) -> Claims {
        Claims::default().exclusive(Key::Snapshot(self.snapshot.clone()))
    }
}

impl Locked for CreateVolumeGroupSnapshot {
    fn claims(&self) -> Claims {
        let name = Claims::default().exclusive(Key::GroupName(self.name.clone()));
        let volumes = self.sources.iter().cloned().map(Key::Volume);
        volumes.fold(name, Claims::exclusive)
    }
}

impl Locked for DeleteVolumeGroupSnapshot {
    fn claims(&self) -> Claims {
        let group = Claims::default().exclusive(Key::Group(self.group.clone()));
        let members = self.snapshots.iter().cloned().map(Key::Snapshot);
        members.fold(group, Claims::exclusive)
    }
}

macro_rules! whole_volume {
    ($($request:ident),+ $(,)?) => {$(
        impl Locked for $request {
            fn claims(&self) -> Claims {
                whole(&self.volume)
            }
        }
    )+};
}

whole_volume!(
    DeleteVolume,
    ControllerExpandVolume,
    ControllerModifyVolume,
    NodeStageVolume,
    NodeUnstageVolume,
    NodeExpandVolume,
);

fn whole(volume: &VolumeId) -> Claims {
    Claims::default().exclusive(Key::Volume(volume.clone()))
}

fn shared_if(several: bool) -> Share {
    if several { Share::Shared } else { Share::Exclusive }
}

#[cfg(test)]
mod tests {
    use wharf_proto::{
        csi,
        csi::volume_capability::{AccessMode, AccessType, BlockVolume, access_mode::Mode},
    };

    use super::*;
    use crate::locks::LockTable;

    fn claims<W, Q: TryFrom<W, Error = tonic::Status> + Locked>(wire: W) -> Claims {
        Q::try_from(wire).expect("a sound request").claims()
    }

    fn capability(mode: Mode) -> Option<csi::VolumeCapability> {
        Some(csi::VolumeCapability {
            access_type: Some(AccessType::Block(BlockVolume {})),
            access_mode: Some(AccessMode { mode: mode.into() }),
        })
    }

    fn attach(node: &str, mode: Mode) -> Claims {
        claims::<_, ControllerPublishVolume>(csi::ControllerPublishVolumeRequest {
            volume_id: "v".into(),
            node_id: node.into(),
            volume_capability: capability(mode),
            ..Default::default()
        })
    }

    fn detach(node: &str) -> Claims {
        claims::<_, ControllerUnpublishVolume>(csi::ControllerUnpublishVolumeRequest {
            volume_id: "v".into(),
            node_id: node.into(),
            ..Default::default()
        })
    }

    fn publish(target: &str, mode: Mode) -> Claims {
        claims::<_, NodePublishVolume>(csi::NodePublishVolumeRequest {
            volume_id: "v".into(),
            target_path: target.into(),
            volume_capability: capability(mode),
            ..Default::default()
        })
    }

    fn unpublish(target: &str) -> Claims {
        claims::<_, NodeUnpublishVolume>(csi::NodeUnpublishVolumeRequest {
            volume_id: "v".into(),
            target_path: target.into(),
        })
    }

    fn clone(name: &str) -> Claims {
        use csi::volume_content_source::{Type, VolumeSource};
        let source = Type::Volume(VolumeSource { volume_id: "v".into() });
        claims::<_, CreateVolume>(csi::CreateVolumeRequest {
            name: name.into(),
            volume_capabilities: capability(Mode::SingleNodeWriter).into_iter().collect(),
            volume_content_source: Some(csi::VolumeContentSource { r#type: Some(source) }),
            ..Default::default()
        })
    }

    fn delete() -> Claims {
        let wire = csi::DeleteVolumeRequest { volume_id: "v".into(), ..Default::default() };
        claims::<_, DeleteVolume>(wire)
    }

    fn group() -> Claims {
        claims::<_, CreateVolumeGroupSnapshot>(csi::CreateVolumeGroupSnapshotRequest {
            name: "g".into(),
            source_volume_ids: vec!["u".into(), "v".into()],
            ..Default::default()
        })
    }

    #[test]
    fn who_may_run_together() {
        let (one, many) = (Mode::SingleNodeWriter, Mode::MultiNodeMultiWriter);
        for (what, first, second, together) in [
            ("two nodes, one allowed", attach("a", one), attach("b", one), false),
            ("two nodes, many allowed", attach("a", many), attach("b", many), true),
            ("one node twice", attach("a", many), attach("a", many), false),
            ("attach and detach elsewhere", attach("a", many), detach("b"), true),
            ("attach and detach everywhere", attach("a", many), detach(""), false),
            ("two targets, one allowed", publish("/a", one), publish("/b", one), false),
            ("two targets, many allowed", publish("/a", many), publish("/b", many), true),
            ("publish and unpublish", publish("/a", many), unpublish("/a"), false),
            ("two unpublishes", unpublish("/a"), unpublish("/b"), true),
            ("two clones", clone("a"), clone("b"), true),
            ("one name twice", clone("a"), clone("a"), false),
            ("a clone and its source's end", clone("a"), delete(), false),
            ("a publish and an end", publish("/a", many), delete(), false),
            ("a group and a member's end", group(), delete(), false),
            ("a group and a member's publish", group(), publish("/a", many), false),
        ] {
            let mut table = LockTable::default();
            table.take("First", &first).expect("nothing runs yet");
            assert_eq!(table.take("Second", &second).is_ok(), together, "{what}");
        }
    }
}
