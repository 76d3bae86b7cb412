use std::time::Duration;

use serde_json::{Value, json};
use tonic::Status;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_proto::csi::node_service_capability::rpc as node_rpc;
use wharf_proto::csi::volume_capability::{AccessType, MountVolume, access_mode::Mode};

use super::bench::{Bench, CLAIMS, GI, VOLUMES, untimed};
use super::driver::Abilities;
use super::lines::condition;
use crate::driver::Answer;

const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

const RESIZING: &str = "Resizing";
const SUCCESSFUL: (&str, &str) = ("VolumeResizeSuccessful", "Resize volume succeeded");

fn annotated_capacity(bench: &Bench, size: i64) -> String {
    bench.volume_line(&json!({
        "metadata": { "annotations": { PRE_RESIZE: "1Gi" } },
        "spec": { "capacity": { "storage": format!("{size}Gi") } },
    }))
}

/// The begin of a growth after another was refused.
fn begin_after_refusal_line(bench: &Bench, size: i64) -> String {
    bench.claim_line(&json!({
        "metadata": { "resourceVersion": "*" },
        "status": {
            "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
            "allocatedResources": { "storage": format!("{size}Gi") },
            "conditions": [
                condition("Resizing", None),
                { "$patch": "delete", "type": "ControllerResizeError" },
            ],
        },
    }))
}

/// The end of a growth that was refused before.
pub(super) fn finish_after_refusal_line(bench: &Bench, size: i64) -> String {
    let gone = |kind: &str| json!({ "$patch": "delete", "type": kind });
    bench.claim_line(&json!({
        "metadata": { "annotations": { NOT_REQUIRED: "true" }, "resourceVersion": "*" },
        "status": {
            "allocatedResourceStatuses": { "storage": null },
            "capacity": { "storage": format!("{size}Gi") },
            "conditions": [gone("Resizing"), gone("ControllerResizeError")],
        },
    }))
}

#[tokio::test]
async fn a_volume_grows_step_by_step() {
    let Some(mut bench) = Bench::new("grow-steps").await else { return };
    bench.claim().await;
    bench.start().await;
    bench.expect(bench.grow_lines(2)).await;
    let resizing = "External resizer is resizing volume grow-steps";
    bench.expect_events([(RESIZING, resizing), SUCCESSFUL]).await;
    let two = json!({ "storage": "2Gi" });
    assert_eq!(bench.status().await, json!({ "capacity": two, "allocatedResources": two }));
    let claim = bench.get(CLAIMS).await.unwrap();
    assert_eq!(claim["metadata"]["annotations"], json!({ NOT_REQUIRED: "true" }));
    let volume = bench.get(VOLUMES).await.unwrap();
    assert_eq!(volume["spec"]["capacity"], two);
    bench.stop().await;
}

#[tokio::test]
async fn what_the_node_has_to_do_is_left_to_it_and_cleaned_up_after() {
    let Some(mut bench) = Bench::with_node("grow-node").await else { return };
    bench
        .bound(
            |it| it["metadata"]["annotations"] = json!({ NOT_REQUIRED: "true" }),
            |_| {},
            json!({}),
        )
        .await;
    bench.start().await;
    let begin = bench.claim_line(&json!({
        "metadata": { "annotations": { NOT_REQUIRED: null }, "resourceVersion": "*" },
        "status": {
            "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
            "allocatedResources": { "storage": "2Gi" },
            "conditions": [condition("Resizing", None)],
        },
    }));
    let resized = annotated_capacity(&bench, 2);
    bench.expect([begin, bench.expand_line(2), resized, bench.pending_line()]).await;
    let resizing = "External resizer is resizing volume grow-node";
    let required = "Require file system resize of volume on node";
    bench.expect_events([(RESIZING, resizing), ("FileSystemResizeRequired", required)]).await;
    assert_eq!(bench.get(CLAIMS).await.unwrap()["metadata"]["annotations"], Value::Null);

    // What the kubelet does in the end.
    bench.journal.clear();
    let done = json!({
        "capacity": { "storage": "2Gi" }, "allocatedResourceStatuses": null, "conditions": null,
    });
    bench.patch_status(done).await;
    let settled = json!({ "metadata": { "annotations": { PRE_RESIZE: null } } });
    bench.expect([bench.volume_line(&settled)]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_growth_after_another_notes_the_size_between_them() {
    let Some(mut bench) = Bench::with_node("grow-twice").await else { return };
    let noted = |it: &mut Value| it["metadata"]["annotations"] = json!({ PRE_RESIZE: "512Mi" });
    bench.bound(|_| {}, noted, json!({})).await;
    bench.start().await;
    let settled = json!({ "metadata": { "annotations": { PRE_RESIZE: null } } });
    let settled = bench.volume_line(&settled);
    let resized = annotated_capacity(&bench, 2);
    let lines = [settled, bench.begin_line(2), bench.expand_line(2), resized, bench.pending_line()];
    bench.expect(lines).await;
    bench.stop().await;
}

#[tokio::test]
async fn the_size_before_is_noted_only_if_asked_for() {
    let Some(mut bench) = Bench::with_node("grow-plain").await else { return };
    bench.options.annotate = false;
    bench.claim().await;
    bench.start().await;
    let [begin, expand, resized, _] = bench.grow_lines(2);
    bench.expect([begin, expand, resized, bench.pending_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn the_driver_is_told_all_about_the_volume() {
    let controller = vec![rpc::Type::ExpandVolume, rpc::Type::SingleNodeMultiWriter];
    let abilities = Abilities { controller, ..Abilities::default() };
    let Some(mut bench) = Bench::with("grow-fields", abilities).await else { return };
    let secret = json!({ "metadata": { "name": "grow-fields" }, "stringData": { "key": "hush" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    let fields = |volume: &mut Value| {
        volume["spec"]["mountOptions"] = json!(["noatime"]);
        let csi = &mut volume["spec"]["csi"];
        csi["fsType"] = json!("xfs");
        csi["controllerExpandSecretRef"] = json!({ "name": "grow-fields", "namespace": "default" });
    };
    bench.bound(|_| {}, fields, json!({})).await;
    bench.start().await;
    let [begin, expand, resized, finish] = bench.grow_lines(2);
    let secret = "GET namespaces/default/secrets/grow-fields".to_owned();
    bench.expect([begin, secret, expand, resized, finish]).await;
    let request = bench.driver.expanded();
    assert_eq!(request.secrets["key"], "hush");
    assert_eq!(request.capacity_range.unwrap().required_bytes, 2 * GI);
    let capability = request.volume_capability.unwrap();
    assert_eq!(capability.access_mode.unwrap().mode(), Mode::SingleNodeMultiWriter);
    let mount = MountVolume {
        fs_type: "xfs".to_owned(),
        mount_flags: vec!["noatime".to_owned()],
        ..MountVolume::default()
    };
    assert_eq!(capability.access_type, Some(AccessType::Mount(mount)));
    bench.stop().await;
}

#[tokio::test]
async fn a_secret_that_is_not_there_is_named() {
    let Some(mut bench) = Bench::new("grow-secret").await else { return };
    bench.options.backoff.first = Duration::from_mins(1);
    let reference = json!({ "name": "grow-secret", "namespace": "default" });
    let fields = |it: &mut Value| it["spec"]["csi"]["controllerExpandSecretRef"] = reference;
    bench.bound(|_| {}, fields, json!({})).await;
    bench.start().await;
    let secret = "GET namespaces/default/secrets/grow-secret -> 404".to_owned();
    bench.expect([bench.begin_line(2), secret]).await;
    let failed = "resize volume \"grow-secret\" by resizer \"grow-secret.csi.test\" failed: \
        failed to load secret \"default/grow-secret\": Secret: not found";
    let resizing = "External resizer is resizing volume grow-secret";
    bench.expect_events([(RESIZING, resizing), ("VolumeResizeFailed", failed)]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_of_the_node_alone_is_not_called() {
    let node = vec![node_rpc::Type::ExpandVolume];
    let abilities = Abilities { node, ..Abilities::default() };
    let Some(mut bench) = Bench::with("grow-trivial", abilities).await else { return };
    bench.claim().await;
    bench.start().await;
    let resized = annotated_capacity(&bench, 2);
    bench.expect([bench.begin_line(2), resized, bench.pending_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_can_do_nothing_needs_no_resizer() {
    let Some(mut bench) = Bench::with("grow-unable", Abilities::default()).await else { return };
    let text = bench.refusal().await.to_string();
    let expected = "CSI driver grow-unable.csi.test supports neither resize nor modify: ";
    assert!(text.starts_with(expected), "{text}");
    bench.stop().await;
}

#[tokio::test]
async fn what_cannot_be_is_asked_for_seldom_and_given_up_for_less() {
    let Some(mut bench) = Bench::new("grow-infeasible").await else { return };
    bench.driver.answer(Answer::Error(Status::out_of_range("too large")));
    bench.growing_class().await;
    let five = |it: &mut Value| it["spec"]["resources"]["requests"] = json!({ "storage": "5Gi" });
    bench.bound(five, |_| {}, json!({})).await;
    bench.start().await;
    let error = "rpc error: code = OutOfRange desc = too large";
    let expand = format!("{} -> OutOfRange", bench.expand_line(5));
    bench.expect([bench.begin_line(5), expand, bench.refused_line(error, true)]).await;
    let failed = format!(
        "resize volume \"grow-infeasible\" by resizer \"grow-infeasible.csi.test\" failed: {error}"
    );
    let resizing = "External resizer is resizing volume grow-infeasible";
    bench.expect_events([(RESIZING, resizing), ("VolumeResizeFailed", &failed)]).await;

    bench.journal.clear();
    bench.ask_for("3Gi").await;
    let begin = begin_after_refusal_line(&bench, 3);
    let [_, expand, resized, finish] = bench.grow_lines(3);
    bench.expect([begin, expand, resized, finish]).await;
    bench.stop().await;
}

#[tokio::test]
async fn an_infeasible_growth_is_tried_again_after_the_longest_pause() {
    let Some(mut bench) = Bench::new("grow-slow").await else { return };
    bench.options.backoff.max = Duration::from_millis(200);
    bench.driver.answer(Answer::Error(Status::not_found("where is it")));
    bench.claim().await;
    bench.start().await;
    let error = "rpc error: code = NotFound desc = where is it";
    let [begin, expand, resized, _] = bench.grow_lines(2);
    let lost = format!("{expand} -> NotFound");
    let finish = finish_after_refusal_line(&bench, 2);
    bench.expect([begin, lost, bench.refused_line(error, true), expand, resized, finish]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_failure_that_may_pass_is_shown_and_cleared() {
    let Some(mut bench) = Bench::new("grow-final").await else { return };
    bench.driver.answer(Answer::Error(Status::internal("broken")));
    bench.claim().await;
    bench.start().await;
    let error = "rpc error: code = Internal desc = broken";
    let [begin, expand, resized, _] = bench.grow_lines(2);
    let failed = format!("{expand} -> Internal");
    let refused = bench.refused_line(error, false);
    let finish = finish_after_refusal_line(&bench, 2);
    bench.expect([begin, failed, refused, expand, resized, finish]).await;
    assert_eq!(bench.status().await["conditions"], Value::Null);
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_may_still_be_at_work_is_asked_again_for_the_same() {
    let Some(mut bench) = Bench::new("grow-uncertain").await else { return };
    bench.options.backoff.first = Duration::from_mins(1);
    bench.driver.answer(Answer::Error(Status::aborted("pending")));
    bench.growing_class().await;
    bench.claim().await;
    bench.start().await;
    let aborted = format!("{} -> Aborted", bench.expand_line(2));
    bench.expect([bench.begin_line(2), aborted]).await;
    bench.journal.clear();
    // The new wish waits for what was begun.
    bench.ask_for("3Gi").await;
    let [_, expand, resized, finish] = bench.grow_lines(2);
    let lines = bench.journal.wait_for(7).await;
    let lines: Vec<String> = lines.iter().map(|line| untimed(line)).collect();
    assert_eq!(lines[..3], [expand, resized, finish]);
    assert_eq!(lines[4..6], bench.grow_lines(3)[1..3]);
    bench.stop().await;
}

/// The claim asks for 2Gi, and 10Gi were begun by a process that is no more.
async fn begun_before(name: &'static str) -> Option<Bench> {
    let bench = Bench::new(name).await?;
    let begun = json!({
        "allocatedResources": { "storage": "10Gi" },
        "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
    });
    bench.bound(|_| {}, |_| {}, begun).await;
    Some(bench)
}

fn goes_on_line(bench: &Bench) -> String {
    bench.claim_line(&json!({
        "metadata": { "resourceVersion": "*" },
        "status": {
            "allocatedResources": { "storage": "10Gi" },
            "conditions": [condition("Resizing", None)],
        },
    }))
}

#[tokio::test]
async fn what_was_begun_before_a_restart_is_finished_first() {
    let Some(mut bench) = begun_before("grow-restart").await else { return };
    bench.start().await;
    let [_, expand, resized, finish] = bench.grow_lines(10);
    bench.expect([goes_on_line(&bench), expand, resized, finish]).await;
    bench.stop().await;
}

#[tokio::test]
async fn what_was_begun_before_a_restart_and_cannot_be_gives_way_to_what_is_asked_for() {
    let Some(mut bench) = begun_before("grow-give-way").await else { return };
    bench.driver.answer(Answer::Error(Status::out_of_range("too large")));
    bench.start().await;
    let error = "rpc error: code = OutOfRange desc = too large";
    let refused = bench.refused_line(error, true);
    let lost = format!("{} -> OutOfRange", bench.expand_line(10));
    let begin = begin_after_refusal_line(&bench, 2);
    let [_, expand, resized, finish] = bench.grow_lines(2);
    bench.expect([goes_on_line(&bench), lost, refused, begin, expand, resized, finish]).await;
    bench.stop().await;
}

#[tokio::test]
async fn what_is_not_ours_or_not_due_is_left_alone() {
    let Some(mut bench) = Bench::new("grow-barrier").await else { return };
    let other = |name| async move { Bench::new(name).await.unwrap() };
    let driver = json!(bench.options.driver);
    let own = |it: &mut Value| it["spec"]["csi"]["driver"] = driver.clone();
    other("grow-foreign").await.claim().await;
    let large = |it: &mut Value| it["spec"]["resources"]["requests"] = json!({ "storage": "1Gi" });
    other("grow-enough").await.bound(large, own, json!({})).await;
    other("grow-unbound").await.bound(|_| {}, own, json!({ "phase": "Lost" })).await;
    let stranger = |it: &mut Value| {
        own(it);
        it["spec"]["claimRef"]["uid"] = json!("of-another");
    };
    other("grow-stranger").await.bound(|_| {}, stranger, json!({})).await;
    let pending = json!({ "allocatedResources": { "storage": "2Gi" }, "allocatedResourceStatuses": { "storage": "NodeResizePending" } });
    let grown = |it: &mut Value| {
        own(it);
        it["spec"]["capacity"] = json!({ "storage": "2Gi" });
    };
    other("grow-pending").await.bound(|_| {}, grown, pending).await;
    bench.start().await;
    bench.claim().await;
    bench.expect(bench.grow_lines(2)).await;
    bench.stop().await;
}
