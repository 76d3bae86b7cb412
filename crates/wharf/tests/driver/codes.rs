//! The gRPC code of every refusal, RPC by RPC.

use std::fmt::Debug;

use tonic::{Code, Response, Status};
use wharf_proto::csi::{self, volume_capability::access_mode::Mode};

use crate::{
    bench::{Bench, MIB, NODE, PoolKind},
    client::{
        Usage, block, block_as, from_snapshot, from_volume, map, mounted, mounted_as, range, text,
        volume,
    },
    running::Running,
};

const SIZE: u64 = 16 * MIB;
const NONE: &str = "no-such-thing";

/// Checks a refusal: its code, a text for the person who has to act on it, and nothing in the
/// details.
#[track_caller]
pub(crate) fn refused<T: Debug>(what: &str, answer: Result<T, Status>, code: Code) -> String {
    let status = match answer {
        Ok(answer) => panic!("{what}: expected {code:?}, was answered {answer:?}"),
        Err(status) => status,
    };
    assert_eq!(status.code(), code, "{what}: {}", status.message());
    assert!(!status.message().is_empty(), "{what}: no message");
    assert!(status.details().is_empty(), "{what}: details");
    status.message().to_owned()
}

fn inner<T>(answer: Result<Response<T>, Status>) -> Result<T, Status> {
    answer.map(Response::into_inner)
}

async fn bench_and_driver() -> Option<(Bench, Running)> {
    let bench = Bench::new(PoolKind::Copy)?;
    let driver = bench.start().await;
    Some((bench, driver))
}

async fn made(bench: &Bench, driver: &Running, name: &str) -> Usage {
    let made = driver.create(volume(name, SIZE, mounted(""))).await.unwrap();
    Usage::new(bench, name, &made.volume_id, mounted(""))
}

#[tokio::test(flavor = "multi_thread")]
async fn create_volume() {
    let Some((_bench, driver)) = bench_and_driver().await else { return };
    let good = || volume("a", SIZE, mounted(""));
    let id = driver.create(good()).await.unwrap().volume_id;
    let snapshot = driver.snapshot("s", &id).await.unwrap().snapshot_id;
    let elsewhere = csi::Topology { segments: map(&[("topology.local.csi.wharf/node", NONE)]) };
    let elsewhere =
        Some(csi::TopologyRequirement { requisite: vec![elsewhere], ..Default::default() });
    let limited = Some(csi::CapacityRange { required_bytes: 0, limit_bytes: 4096 });
    let many = |mode| vec![mounted_as("", &[], mode)];
    type Change = Box<dyn Fn(&mut csi::CreateVolumeRequest)>;
    let cases: Vec<(&str, Code, Change)> = vec![
        ("another size", Code::AlreadyExists, Box::new(|it| it.capacity_range = range(2 * SIZE))),
        ("another use", Code::AlreadyExists, Box::new(|it| it.volume_capabilities = vec![block()])),
        (
            "other parameters",
            Code::AlreadyExists,
            Box::new(|it| it.parameters = map(&[("thin", "true")])),
        ),
        (
            "a source",
            Code::AlreadyExists,
            Box::new(move |it| it.volume_content_source = from_snapshot(&snapshot)),
        ),
        (
            "no such snapshot",
            Code::NotFound,
            Box::new(|it| {
                it.name = "b".into();
                it.volume_content_source = from_snapshot(NONE);
            }),
        ),
        (
            "no such volume",
            Code::NotFound,
            Box::new(|it| {
                it.name = "b".into();
                it.volume_content_source = from_volume(NONE);
            }),
        ),
        (
            "smaller than its source",
            Code::OutOfRange,
            Box::new(move |it| {
                it.name = "b".into();
                it.capacity_range = range(SIZE / 2);
                it.volume_content_source = from_volume(&id);
            }),
        ),
        (
            "another place",
            Code::ResourceExhausted,
            Box::new(move |it| {
                it.name = "b".into();
                it.accessibility_requirements = elsewhere.clone();
            }),
        ),
        (
            "larger than the disk",
            Code::OutOfRange,
            Box::new(|it| {
                it.name = "b".into();
                it.capacity_range = range(1 << 60);
            }),
        ),
        (
            "smaller than a filesystem",
            Code::OutOfRange,
            Box::new(move |it| {
                it.name = "b".into();
                it.capacity_range = limited;
            }),
        ),
        (
            "writers on many nodes",
            Code::InvalidArgument,
            Box::new(move |it| {
                it.name = "b".into();
                it.volume_capabilities = many(Mode::MultiNodeMultiWriter);
            }),
        ),
    ];
    for (what, code, change) in cases {
        let mut request = good();
        change(&mut request);
        refused(what, driver.create(request).await, code);
    }
    assert_eq!(driver.list().await.unwrap().len(), 1);
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_volume() {
    let Some((bench, driver)) = bench_and_driver().await else { return };
    driver.delete(NONE).await.unwrap();
    let usage = made(&bench, &driver, "a").await;
    driver.attach(&usage).await.unwrap();
    let said = refused("published", driver.delete(&usage.id).await, Code::FailedPrecondition);
    assert!(said.contains(NODE), "{said}");
    driver.detach(&usage.id).await.unwrap();
    driver.stage(&usage).await.unwrap();
    let said = refused("staged", driver.delete(&usage.id).await, Code::FailedPrecondition);
    assert!(said.contains(&text(&usage.staging)), "{said}");
    driver.unstage(&usage).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
    driver.delete(&usage.id).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controller_publish_and_unpublish_volume() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start_with(&["--attach-limit", "1"]).await;
    let (a, b) = (made(&bench, &driver, "a").await, made(&bench, &driver, "b").await);

    let gone = Usage { id: NONE.to_owned(), ..a.clone() };
    refused("no such volume", driver.attach(&gone).await, Code::NotFound);
    let request = csi::ControllerPublishVolumeRequest {
        volume_id: a.id.clone(),
        node_id: NONE.to_owned(),
        volume_capability: Some(mounted("")),
        ..Default::default()
    };
    let answer = inner(driver.controller().controller_publish_volume(request).await);
    refused("no such node", answer, Code::NotFound);
    driver.attach(&a).await.unwrap();
    driver.attach(&a).await.unwrap();
    let read_only = Usage { read_only: true, ..a.clone() };
    refused("read-only", driver.attach(&read_only).await, Code::AlreadyExists);
    let as_device = Usage { capability: block(), ..a.clone() };
    refused("another use", driver.attach(&as_device).await, Code::AlreadyExists);
    refused("too many", driver.attach(&b).await, Code::ResourceExhausted);

    driver.detach(NONE).await.unwrap();
    let everywhere =
        csi::ControllerUnpublishVolumeRequest { volume_id: a.id.clone(), ..Default::default() };
    inner(driver.controller().controller_unpublish_volume(everywhere).await).unwrap();
    driver.attach(&b).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_on_another_node_is_refused_by_its_name() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let socket = format!("unix://{}", bench.socket().display());
    let mut other = std::process::Command::new(crate::bench::WHARF);
    other.args(["driver", "--endpoint", &socket, "--node", "node-2", "--pool"]).arg(bench.pool());
    other.arg("--state-dir").arg(bench.path("state"));
    let driver = Running::start(&other, &bench.path(""), &bench.socket()).await.unwrap();
    driver.stop().await;
    let driver = bench.start().await;
    let usage = made(&bench, &driver, "a").await;
    let there = csi::ControllerPublishVolumeRequest {
        volume_id: usage.id.clone(),
        node_id: "node-2".to_owned(),
        volume_capability: Some(mounted("")),
        ..Default::default()
    };
    inner(driver.controller().controller_publish_volume(there).await).unwrap();
    let said = refused("elsewhere", driver.attach(&usage).await, Code::FailedPrecondition);
    assert!(said.contains("node-2"), "{said}");
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_lookups() {
    let Some((bench, driver)) = bench_and_driver().await else { return };
    let usage = made(&bench, &driver, "a").await;
    let mut controller = driver.controller();
    let volume_id = || NONE.to_owned();
    let request = csi::ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id(),
        volume_capabilities: vec![mounted("")],
        ..Default::default()
    };
    let answer = controller.validate_volume_capabilities(request.clone()).await;
    refused("validate", inner(answer), Code::NotFound);
    let unsupported = csi::ValidateVolumeCapabilitiesRequest {
        volume_id: usage.id.clone(),
        volume_capabilities: vec![mounted_as("", &[], Mode::MultiNodeMultiWriter)],
        ..request
    };
    let answer = inner(controller.validate_volume_capabilities(unsupported).await).unwrap();
    assert!(answer.confirmed.is_none() && !answer.message.is_empty(), "{answer:?}");

    let token = "no token".to_owned();
    let request = csi::ListVolumesRequest { starting_token: token.clone(), ..Default::default() };
    refused("token", inner(controller.list_volumes(request).await), Code::Aborted);
    let request = csi::ListSnapshotsRequest { starting_token: token, ..Default::default() };
    refused("token", inner(controller.list_snapshots(request).await), Code::Aborted);
    let request = csi::ListSnapshotsRequest { snapshot_id: volume_id(), ..Default::default() };
    assert!(inner(controller.list_snapshots(request).await).unwrap().entries.is_empty());
    let request = csi::ControllerGetVolumeRequest { volume_id: volume_id() };
    refused("get", inner(controller.controller_get_volume(request).await), Code::NotFound);
    let request = csi::GetSnapshotRequest { snapshot_id: volume_id(), ..Default::default() };
    refused("get snapshot", inner(controller.get_snapshot(request).await), Code::NotFound);
    refused("health", driver.health(NONE).await, Code::NotFound);
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_and_groups() {
    let Some((bench, driver)) = bench_and_driver().await else { return };
    let (a, b) = (made(&bench, &driver, "a").await, made(&bench, &driver, "b").await);
    driver.snapshot("s", &a.id).await.unwrap();
    refused("another source", driver.snapshot("s", &b.id).await, Code::AlreadyExists);
    refused("no such volume", driver.snapshot("t", NONE).await, Code::NotFound);
    driver.delete_snapshot(NONE).await.unwrap();

    let group = driver.group("g", &[&a.id, &b.id]).await.unwrap();
    refused("other sources", driver.group("g", &[&a.id]).await, Code::AlreadyExists);
    refused("no such volume", driver.group("h", &[&a.id, NONE]).await, Code::NotFound);
    let member = &group.snapshots[0].snapshot_id;
    refused("a member", driver.delete_snapshot(member).await, Code::InvalidArgument);
    let request = csi::DeleteVolumeGroupSnapshotRequest {
        group_snapshot_id: group.group_snapshot_id.clone(),
        snapshot_ids: vec![member.clone()],
        ..Default::default()
    };
    let answer = driver.groups().delete_volume_group_snapshot(request).await;
    refused("a part of its members", inner(answer), Code::InvalidArgument);
    let request = csi::GetVolumeGroupSnapshotRequest {
        group_snapshot_id: NONE.to_owned(),
        ..Default::default()
    };
    let answer = driver.groups().get_volume_group_snapshot(request).await;
    refused("no such group", inner(answer), Code::NotFound);
    let unknown =
        csi::VolumeGroupSnapshot { group_snapshot_id: NONE.to_owned(), ..Default::default() };
    driver.delete_group(&unknown).await.unwrap();
    driver
        .delete_group(&csi::VolumeGroupSnapshot { snapshots: group.snapshots.clone(), ..unknown })
        .await
        .unwrap();
    driver.delete_group(&group).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expand_and_modify_volume() {
    let Some((bench, driver)) = bench_and_driver().await else { return };
    let usage = made(&bench, &driver, "a").await;
    refused("no such volume", driver.expand(NONE, SIZE).await, Code::NotFound);
    refused("larger than the disk", driver.expand(&usage.id, 1 << 60).await, Code::OutOfRange);
    assert_eq!(driver.expand(&usage.id, SIZE / 2).await.unwrap(), SIZE);
    refused("not there", driver.node_expand(&usage, SIZE).await, Code::NotFound);

    refused("no such volume", driver.modify(NONE, &[("riops", "1")]).await, Code::NotFound);
    for limits in [[("riops", "7"), ("speed", "1")], [("riops", "7"), ("wbps", "-1")]] {
        refused("limits", driver.modify(&usage.id, &limits).await, Code::InvalidArgument);
    }
    driver.stop().await;
    // The mark is what a rebuild would go by.
    let image = bench.files().remove(0);
    let mark = wharf_driver::pool::Mark::read(&image).unwrap().unwrap();
    let wharf_driver::pool::Mark::Volume(volume) = mark else { panic!("{mark:?}") };
    assert!(volume.limits.is_unlimited(), "{:?}", volume.limits);
}

#[tokio::test(flavor = "multi_thread")]
async fn stage_and_publish_on_the_node() {
    let Some((bench, driver)) = bench_and_driver().await else { return };
    let usage = made(&bench, &driver, "a").await;
    let gone = Usage { id: NONE.to_owned(), ..usage.clone() };
    refused("no such volume", driver.stage(&gone).await, Code::NotFound);
    refused("no such volume", driver.publish(&gone).await, Code::NotFound);
    refused("not staged", driver.publish(&usage).await, Code::FailedPrecondition);
    let nowhere = Usage { staging: "".into(), ..usage.clone() };
    refused("no staging path", driver.publish(&nowhere).await, Code::FailedPrecondition);
    driver.unstage(&gone).await.unwrap();
    driver.unpublish(&gone).await.unwrap();

    driver.stage(&usage).await.unwrap();
    driver.stage(&usage).await.unwrap();
    let device = Usage { capability: block(), ..usage.clone() };
    refused("another use", driver.stage(&device).await, Code::AlreadyExists);
    driver.publish(&usage).await.unwrap();
    driver.publish(&usage).await.unwrap();
    let read_only = Usage { read_only: true, ..usage.clone() };
    refused("read-only", driver.publish(&read_only).await, Code::AlreadyExists);
    let second = Usage { target: bench.path("pods/second"), ..usage.clone() };
    let said = refused("a second target", driver.publish(&second).await, Code::FailedPrecondition);
    assert!(said.contains(&text(&usage.target)), "{said}");
    assert!(!second.target.exists());

    let stats = async |id: &str, path: &std::path::Path| {
        let request = csi::NodeGetVolumeStatsRequest {
            volume_id: id.to_owned(),
            volume_path: text(path),
            ..Default::default()
        };
        inner(driver.node().node_get_volume_stats(request).await)
    };
    assert!(stats(&usage.id, &usage.target).await.unwrap().usage[0].total > 0);
    refused("no such volume", stats(NONE, &usage.target).await, Code::NotFound);
    refused("elsewhere", stats(&usage.id, &second.target).await, Code::NotFound);
    let unstaged = driver.unstage(&usage).await.unwrap_err();
    assert!(unstaged.message().contains(&text(&usage.target)), "{unstaged}");
    driver.take_down(&usage).await.unwrap();

    let xfs = Usage { capability: mounted("xfs"), ..usage.clone() };
    refused("it holds ext4", driver.stage(&xfs).await, Code::FailedPrecondition);
    let many = Usage { capability: block_as(Mode::MultiNodeSingleWriter), ..usage };
    refused("many nodes", driver.stage(&many).await, Code::InvalidArgument);
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_turned_off_is_unimplemented() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start_with(&["--attach=false"]).await;
    let usage = made(&bench, &driver, "a").await;
    refused("attach", driver.attach(&usage).await, Code::Unimplemented);
    let request = csi::ControllerGetCapabilitiesRequest {};
    let answer = driver.controller().controller_get_capabilities(request).await;
    let told = format!("{:?}", inner(answer).unwrap());
    assert!(told.contains("ListVolumes"), "{told}");
    assert!(!told.contains("ListVolumesPublishedNodes"), "{told}");
    driver.bring_up(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publish_with_another_selinux_label_than_the_stage_is_refused_by_name() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let mut usage = made(&bench, &driver, "a").await;
    driver.stage(&usage).await.unwrap();
    let label = "system_u:object_r:container_file_t:s0:c1,c2";
    let flag = format!("context=\"{label}\"");
    usage.capability = mounted_as("", &[&flag], Mode::SingleNodeWriter);
    let text = refused("another label", driver.publish(&usage).await, Code::FailedPrecondition);
    assert!(text.contains("SELinux label") && text.contains(label), "{text}");
    usage.capability = mounted("");
    driver.publish(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}
