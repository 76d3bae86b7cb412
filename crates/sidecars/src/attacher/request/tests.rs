use wharf_cluster::CsiNodeDriver;
use wharf_proto::csi::volume_capability::{
    AccessType, BlockVolume, MountVolume, access_mode::Mode,
};

use super::*;

fn spec(modes: &[&str]) -> PersistentVolumeSpec {
    PersistentVolumeSpec {
        csi: Some(CsiVolumeSource { volume_handle: "v".to_owned(), ..CsiVolumeSource::default() }),
        access_modes: modes.iter().map(|&it| it.into()).collect(),
        mount_options: Box::new(["noatime".to_owned()]),
        ..PersistentVolumeSpec::default()
    }
}

fn published(
    change: impl FnOnce(&mut PersistentVolumeSpec),
    capabilities: AttachCapabilities,
) -> Result<ControllerPublishVolumeRequest, AttachRefusal> {
    let mut spec = spec(&["ReadWriteOnce"]);
    change(&mut spec);
    publish(&spec, spec.csi.as_ref().unwrap(), capabilities, "ext4")
}

#[test]
fn an_attachment_names_exactly_one_volume() {
    let mut attachment = VolumeAttachment::default();
    assert_eq!(AttachmentSource::of(&attachment), Err(AttachRefusal::NoSource));
    attachment.spec.source.persistent_volume_name = Some("a".to_owned());
    assert_eq!(AttachmentSource::of(&attachment), Ok(AttachmentSource::Named("a")));
    attachment.spec.source.inline_volume_spec = Some(Box::new(spec(&[])));
    assert_eq!(AttachmentSource::of(&attachment), Err(AttachRefusal::BothSources));
    attachment.spec.source.persistent_volume_name = None;
    assert!(
        matches!(AttachmentSource::of(&attachment), Ok(AttachmentSource::Inline(_, csi)) if csi.volume_handle == "v")
    );
    attachment.spec.source.inline_volume_spec = Some(Box::default());
    assert_eq!(AttachmentSource::of(&attachment), Err(AttachRefusal::InlineWithoutCsi));
}

#[test]
fn a_filesystem_has_the_default_type_and_the_options_of_the_volume() {
    let access = |change: fn(&mut PersistentVolumeSpec)| {
        let request = published(change, AttachCapabilities::default()).unwrap();
        request.volume_capability.unwrap().access_type.unwrap()
    };
    let mount = |fs_type: &str| {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: vec!["noatime".to_owned()],
            ..MountVolume::default()
        })
    };
    assert_eq!(access(|_| {}), mount("ext4"));
    assert_eq!(access(|it| it.csi.as_mut().unwrap().fs_type = "xfs".into()), mount("xfs"));
    assert_eq!(access(|it| it.volume_mode = Some("Filesystem".into())), mount("ext4"));
    let block = AccessType::Block(BlockVolume {});
    assert_eq!(access(|it| it.volume_mode = Some("Block".into())), block);
}

#[test]
fn a_driver_is_told_only_what_it_understands() {
    let able = AttachCapabilities {
        read_only: true,
        single_node_multi_writer: true,
        ..AttachCapabilities::default()
    };
    let found = |capabilities| {
        let request =
            published(|it| it.csi.as_mut().unwrap().read_only = true, capabilities).unwrap();
        (request.readonly, request.volume_capability.unwrap().access_mode.unwrap().mode())
    };
    assert_eq!(found(AttachCapabilities::default()), (false, Mode::SingleNodeWriter));
    assert_eq!(found(able), (true, Mode::SingleNodeMultiWriter));
    let none = published(|it| it.access_modes = Box::default(), able).unwrap_err();
    assert_eq!(none.to_string(), "unsupported AccessMode combination: []");
}

#[test]
fn a_node_has_the_id_that_its_object_gives() {
    let mut node = CsiNode::default();
    let refused = |node| node_id("d", "n", node).unwrap_err().to_string();
    assert_eq!(refused(None), "csinode.storage.k8s.io \"n\" not found");
    assert_eq!(refused(Some(&node)), "CSINode n does not contain driver d");
    node.spec.drivers = vec![CsiNodeDriver {
        name: "d".to_owned(),
        node_id: "id".to_owned(),
        ..CsiNodeDriver::default()
    }];
    assert_eq!(node_id("d", "n", Some(&node)), Ok("id".to_owned()));
}

#[test]
fn what_was_noted_before_the_attach_is_read_back() {
    let mut attachment = VolumeAttachment::default();
    assert_eq!(noted_node_id(&attachment), None);
    assert_eq!(AttachedVolume::noted_on(&attachment), None);
    let mut noted =
        vec![(annotation::ATTACHMENT_NODE_ID, "id"), (annotation::ATTACHMENT_VOLUME_HANDLE, "v")];
    attachment.metadata.annotations = noted.clone().into_iter().collect();
    assert_eq!(noted_node_id(&attachment), Some("id"));
    let volume = AttachedVolume::noted_on(&attachment).unwrap();
    assert_eq!(volume, AttachedVolume { handle: "v".to_owned(), secret: None });
    noted.push((annotation::ATTACHMENT_SECRET, "space/key"));
    attachment.metadata.annotations = noted.into_iter().collect();
    let secret = AttachedVolume::noted_on(&attachment).unwrap().secret.unwrap();
    assert_eq!((&*secret.namespace, &*secret.name), ("space", "key"));
}
