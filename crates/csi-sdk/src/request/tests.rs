//! Tables of requests that are refused, and of the texts of the refusals.

use std::collections::BTreeMap;

use tonic::{Code, Status};
use wharf_proto::{
    csi,
    csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume},
};

use super::*;
use crate::types::CapacityRange;

/// A change to a valid request, the field that the refusal names, and a part of its text.
type Case<W> = (fn(&mut W), &'static str, &'static str);

fn refusals<W: Clone, Q: TryFrom<W, Error = Status> + std::fmt::Debug>(
    good: &W,
    cases: &[Case<W>],
) {
    Q::try_from(good.clone()).expect("the good request is good");
    for (spoil, field, text) in cases {
        let mut wire = good.clone();
        spoil(&mut wire);
        let refused = Q::try_from(wire).expect_err(field);
        assert_eq!(refused.code(), Code::InvalidArgument, "{field}: {text}");
        let message = refused.message();
        assert!(message.starts_with(&format!("{field}: expected ")), "{field}: {message}");
        assert!(message.contains(text), "{field}: {message} lacks {text:?}");
    }
}

fn block() -> csi::VolumeCapability {
    csi::VolumeCapability {
        access_type: Some(AccessType::Block(BlockVolume {})),
        access_mode: Some(AccessMode { mode: 1 }),
    }
}

fn mount(change: impl FnOnce(&mut MountVolume)) -> csi::VolumeCapability {
    let mut volume = MountVolume::default();
    change(&mut volume);
    csi::VolumeCapability { access_type: Some(AccessType::Mount(volume)), ..block() }
}

fn range(required_bytes: i64, limit_bytes: i64) -> Option<csi::CapacityRange> {
    Some(csi::CapacityRange { required_bytes, limit_bytes })
}

fn long_map() -> BTreeMap<String, String> {
    BTreeMap::from([("key".to_owned(), "v".repeat(4094))])
}

fn create() -> csi::CreateVolumeRequest {
    csi::CreateVolumeRequest {
        name: "é/../name with\ttab, LF\n and CR\r".to_owned(),
        volume_capabilities: vec![block()],
        ..Default::default()
    }
}

#[test]
fn create_volume() {
    refusals::<_, CreateVolume>(
        &create(),
        &[
            (|it| it.name.clear(), "name", "1 to 128 bytes"),
            (|it| it.name = "n".repeat(129), "name", "at most 128 bytes, not 129"),
            (|it| it.name = "a\0".into(), "name", "no control characters"),
            (|it| it.name = "a\u{85}".into(), "name", "no control characters"),
            (|it| it.volume_capabilities.clear(), "volume_capabilities", "at least one"),
            (
                |it| it.volume_capabilities[0].access_type = None,
                "volume_capabilities[0].access_type",
                "block or mount",
            ),
            (
                |it| it.volume_capabilities[0].access_mode = None,
                "volume_capabilities[0].access_mode.mode",
                "one of the access modes",
            ),
            (
                |it| it.volume_capabilities[0].access_mode = Some(AccessMode { mode: 99 }),
                "volume_capabilities[0].access_mode.mode",
                "one of the access modes",
            ),
            (
                |it| {
                    let flags = vec!["o".repeat(2048), "o".repeat(2049)];
                    it.volume_capabilities.push(mount(|mount| mount.mount_flags = flags));
                },
                "volume_capabilities[1].mount.mount_flags",
                "at most 4096 bytes, not 4097",
            ),
            (
                |it| it.volume_capabilities[0] = mount(|mount| mount.fs_type = "e".repeat(129)),
                "volume_capabilities[0].mount.fs_type",
                "at most 128 bytes",
            ),
            (|it| it.capacity_range = range(0, 0), "capacity_range", "to be set"),
            (|it| it.capacity_range = range(-1, 0), "capacity_range.required_bytes", "not -1"),
            (|it| it.capacity_range = range(0, -2), "capacity_range.limit_bytes", "not -2"),
            (|it| it.capacity_range = range(5, 4), "capacity_range.limit_bytes", "at least"),
            (|it| it.parameters = long_map(), "parameters", "at most 4096 bytes, not 4097"),
            (|it| it.mutable_parameters = long_map(), "mutable_parameters", "at most 4096"),
            (
                |it| it.volume_content_source = Some(csi::VolumeContentSource::default()),
                "volume_content_source",
                "a snapshot or a volume",
            ),
        ],
    );
}

#[test]
fn ranges_may_be_open_on_either_side() {
    for (wire, expected) in [
        (None, CapacityRange { required: 0, limit: None }),
        (range(5, 0), CapacityRange { required: 5, limit: None }),
        (range(0, 5), CapacityRange { required: 0, limit: Some(5) }),
        (range(5, 5), CapacityRange { required: 5, limit: Some(5) }),
    ] {
        let request = csi::CreateVolumeRequest { capacity_range: wire, ..create() };
        assert_eq!(CreateVolume::try_from(request).unwrap().capacity, expected);
    }
}

#[test]
fn limits_are_inclusive_and_secrets_may_be_certificates() {
    let request = csi::CreateVolumeRequest {
        name: "n".repeat(128),
        secrets: BTreeMap::from([("ca".to_owned(), "c".repeat(100_000))]),
        parameters: BTreeMap::from([("key".to_owned(), "v".repeat(4093))]),
        ..create()
    };
    assert_eq!(CreateVolume::try_from(request).unwrap().secrets.get("ca").unwrap().len(), 100_000);
}

#[test]
fn controller_publish_volume() {
    let good = csi::ControllerPublishVolumeRequest {
        volume_id: "v".into(),
        node_id: "n".repeat(256),
        volume_capability: Some(block()),
        ..Default::default()
    };
    refusals::<_, ControllerPublishVolume>(
        &good,
        &[
            (|it| it.volume_id = "v".repeat(129), "volume_id", "at most 128 bytes"),
            (|it| it.node_id = "n".repeat(257), "node_id", "at most 256 bytes"),
            (|it| it.volume_capability = None, "volume_capability", "a way to use"),
            (|it| it.volume_context = long_map(), "volume_context", "at most 4096"),
        ],
    );
}

#[test]
fn expansions_need_a_range() {
    let good = csi::ControllerExpandVolumeRequest {
        volume_id: "v".into(),
        capacity_range: range(1, 0),
        ..Default::default()
    };
    refusals::<_, ControllerExpandVolume>(
        &good,
        &[
            (|it| it.capacity_range = None, "capacity_range", "a range"),
            (|it| it.capacity_range = range(0, 0), "capacity_range", "to be set"),
        ],
    );
}

#[test]
fn group_snapshots_name_each_volume_once() {
    let good = csi::CreateVolumeGroupSnapshotRequest {
        name: "g".into(),
        source_volume_ids: vec!["a".into(), "b".into()],
        ..Default::default()
    };
    refusals::<_, CreateVolumeGroupSnapshot>(
        &good,
        &[
            (|it| it.source_volume_ids.clear(), "source_volume_ids", "at least one"),
            (|it| it.source_volume_ids[1].clear(), "source_volume_ids[1]", "1 to 128"),
            (|it| it.source_volume_ids[1] = "a".into(), "source_volume_ids[1]", "not in the list"),
        ],
    );
    let print = |ids: [&str; 2]| {
        let source_volume_ids = ids.map(str::to_owned).to_vec();
        let wire = csi::CreateVolumeGroupSnapshotRequest { source_volume_ids, ..good.clone() };
        CreateVolumeGroupSnapshot::try_from(wire).unwrap().fingerprint
    };
    assert_eq!(print(["a", "b"]), print(["b", "a"]));
    assert_ne!(print(["a", "b"]), print(["a", "c"]));
}

#[test]
fn paths_lead_where_they_say() {
    let good = csi::NodePublishVolumeRequest {
        volume_id: "v".into(),
        target_path: "/var/lib/kubelet/..data/é".into(),
        volume_capability: Some(block()),
        ..Default::default()
    };
    refusals::<_, NodePublishVolume>(
        &good,
        &[
            (|it| it.target_path.clear(), "target_path", "not an empty text"),
            (|it| it.target_path = "some/path".into(), "target_path", "an absolute path"),
            (|it| it.target_path = "/a/../b".into(), "target_path", "without \"..\""),
            (|it| it.target_path = "/a\0b".into(), "target_path", "without NUL"),
            (|it| it.target_path = "/".repeat(4096), "target_path", "at most 4095 bytes"),
            (|it| it.staging_target_path = "a".into(), "staging_target_path", "an absolute path"),
        ],
    );
}

#[test]
fn no_volume_is_at_a_relative_path() {
    let (volume_id, volume_path) = ("v".to_owned(), "some/path".to_owned());
    let stats = csi::NodeGetVolumeStatsRequest {
        volume_id: volume_id.clone(),
        volume_path: volume_path.clone(),
        ..Default::default()
    };
    assert_eq!(NodeGetVolumeStats::try_from(stats).unwrap_err().code(), Code::NotFound);
    let expand = csi::NodeExpandVolumeRequest { volume_id, volume_path, ..Default::default() };
    assert_eq!(NodeExpandVolume::try_from(expand).unwrap_err().code(), Code::NotFound);
}

#[test]
fn tokens_of_kubernetes_do_not_count() {
    let key = wharf_facts::context::SERVICE_ACCOUNT_TOKENS.to_owned();
    let wire = csi::NodePublishVolumeRequest {
        volume_id: "v".into(),
        target_path: "/t".into(),
        volume_capability: Some(block()),
        volume_context: BTreeMap::from([(key, "t".repeat(10_000))]),
        ..Default::default()
    };
    let request = NodePublishVolume::try_from(wire).unwrap();
    assert!(!format!("{request:?}").contains("ttt"), "{request:?}");
}
