use std::time::Duration;

use serde_json::{Value, json};
use tonic::Status;
use wharf_proto::csi::{
    controller_service_capability::rpc,
    node_service_capability::rpc as node_rpc,
    volume_capability::{AccessType, MountVolume, access_mode::Mode},
};

use super::{
    driver::DriverCapabilities,
    fixture::{CLAIMS, Fixture, GI, VOLUMES, untimed},
    lines::condition,
};
use crate::driver::Answer;

const NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

const RESIZING: &str = "Resizing";
const SUCCESSFUL: (&str, &str) = ("VolumeResizeSuccessful", "Resize volume succeeded");

fn annotated_capacity(fixture: &Fixture, size: i64) -> String {
    fixture.volume_line(&json!({
        "metadata": { "annotations": { PRE_RESIZE: "1Gi" } },
        "spec": { "capacity": { "storage": format!("{size}Gi") } },
    }))
}

/// The journal of the begin of an expansion after a refused one.
fn begin_after_refusal_line(fixture: &Fixture, size: i64) -> String {
    fixture.claim_line(&json!({
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

/// The journal of the end of an expansion that was refused before.
pub(super) fn finish_after_refusal_line(fixture: &Fixture, size: i64) -> String {
    let gone = |kind: &str| json!({ "$patch": "delete", "type": kind });
    fixture.claim_line(&json!({
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
    let Some(mut fixture) = Fixture::new("grow-steps").await else { return };
    fixture.claim().await;
    fixture.start().await;
    fixture.expect(fixture.grow_lines(2)).await;
    let resizing = "External resizer is resizing volume grow-steps";
    fixture.expect_events([(RESIZING, resizing), SUCCESSFUL]).await;
    let two = json!({ "storage": "2Gi" });
    assert_eq!(fixture.status().await, json!({ "capacity": two, "allocatedResources": two }));
    let claim = fixture.get(CLAIMS).await.unwrap();
    assert_eq!(claim["metadata"]["annotations"], json!({ NOT_REQUIRED: "true" }));
    let volume = fixture.get(VOLUMES).await.unwrap();
    assert_eq!(volume["spec"]["capacity"], two);
    fixture.stop().await;
}

#[tokio::test]
async fn what_the_node_has_to_do_is_left_to_it_and_cleaned_up_after() {
    let Some(mut fixture) = Fixture::with_node("grow-node").await else { return };
    fixture
        .bound(
            |it| it["metadata"]["annotations"] = json!({ NOT_REQUIRED: "true" }),
            |_| {},
            json!({}),
        )
        .await;
    fixture.start().await;
    let begin = fixture.claim_line(&json!({
        "metadata": { "annotations": { NOT_REQUIRED: null }, "resourceVersion": "*" },
        "status": {
            "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
            "allocatedResources": { "storage": "2Gi" },
            "conditions": [condition("Resizing", None)],
        },
    }));
    let resized = annotated_capacity(&fixture, 2);
    fixture.expect([begin, fixture.expand_line(2), resized, fixture.pending_line()]).await;
    let resizing = "External resizer is resizing volume grow-node";
    let required = "Require file system resize of volume on node";
    fixture.expect_events([(RESIZING, resizing), ("FileSystemResizeRequired", required)]).await;
    assert_eq!(fixture.get(CLAIMS).await.unwrap()["metadata"]["annotations"], Value::Null);

    // The kubelet's last write.
    fixture.journal.clear();
    let done = json!({
        "capacity": { "storage": "2Gi" }, "allocatedResourceStatuses": null, "conditions": null,
    });
    fixture.patch_status(done).await;
    let settled = json!({ "metadata": { "annotations": { PRE_RESIZE: null } } });
    fixture.expect([fixture.volume_line(&settled)]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_growth_after_another_notes_the_size_between_them() {
    let Some(mut fixture) = Fixture::with_node("grow-twice").await else { return };
    let noted = |it: &mut Value| it["metadata"]["annotations"] = json!({ PRE_RESIZE: "512Mi" });
    fixture.bound(|_| {}, noted, json!({})).await;
    fixture.start().await;
    let settled = json!({ "metadata": { "annotations": { PRE_RESIZE: null } } });
    let settled = fixture.volume_line(&settled);
    let resized = annotated_capacity(&fixture, 2);
    let lines =
        [settled, fixture.begin_line(2), fixture.expand_line(2), resized, fixture.pending_line()];
    fixture.expect(lines).await;
    fixture.stop().await;
}

#[tokio::test]
async fn the_size_before_is_noted_only_if_asked_for() {
    let Some(mut fixture) = Fixture::with_node("grow-plain").await else { return };
    fixture.options.annotate = false;
    fixture.claim().await;
    fixture.start().await;
    let [begin, expand, resized, _] = fixture.grow_lines(2);
    fixture.expect([begin, expand, resized, fixture.pending_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn the_driver_is_told_all_about_the_volume() {
    let controller = vec![rpc::Type::ExpandVolume, rpc::Type::SingleNodeMultiWriter];
    let capabilities = DriverCapabilities { controller, ..DriverCapabilities::default() };
    let Some(mut fixture) = Fixture::with("grow-fields", capabilities).await else { return };
    let secret = json!({ "metadata": { "name": "grow-fields" }, "stringData": { "key": "hush" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    let fields = |volume: &mut Value| {
        volume["spec"]["mountOptions"] = json!(["noatime"]);
        let csi = &mut volume["spec"]["csi"];
        csi["fsType"] = json!("xfs");
        csi["controllerExpandSecretRef"] = json!({ "name": "grow-fields", "namespace": "default" });
    };
    fixture.bound(|_| {}, fields, json!({})).await;
    fixture.start().await;
    let [begin, expand, resized, finish] = fixture.grow_lines(2);
    let secret = "GET namespaces/default/secrets/grow-fields".to_owned();
    fixture.expect([begin, secret, expand, resized, finish]).await;
    let request = fixture.driver.expanded();
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
    fixture.stop().await;
}

#[tokio::test]
async fn a_secret_that_is_not_there_is_named() {
    let Some(mut fixture) = Fixture::new("grow-secret").await else { return };
    fixture.options.backoff.first = Duration::from_mins(1);
    let reference = json!({ "name": "grow-secret", "namespace": "default" });
    let fields = |it: &mut Value| it["spec"]["csi"]["controllerExpandSecretRef"] = reference;
    fixture.bound(|_| {}, fields, json!({})).await;
    fixture.start().await;
    let secret = "GET namespaces/default/secrets/grow-secret -> 404".to_owned();
    fixture.expect([fixture.begin_line(2), secret]).await;
    let failed = "resize volume \"grow-secret\" by resizer \"grow-secret.csi.test\" failed: \
        failed to load secret \"default/grow-secret\": Secret: not found";
    let resizing = "External resizer is resizing volume grow-secret";
    fixture.expect_events([(RESIZING, resizing), ("VolumeResizeFailed", failed)]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_of_the_node_alone_is_not_called() {
    let node = vec![node_rpc::Type::ExpandVolume];
    let capabilities = DriverCapabilities { node, ..DriverCapabilities::default() };
    let Some(mut fixture) = Fixture::with("grow-trivial", capabilities).await else { return };
    fixture.claim().await;
    fixture.start().await;
    let resized = annotated_capacity(&fixture, 2);
    fixture.expect([fixture.begin_line(2), resized, fixture.pending_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_can_do_nothing_needs_no_resizer() {
    let Some(mut fixture) = Fixture::with("grow-unable", DriverCapabilities::default()).await
    else {
        return;
    };
    let text = fixture.refusal().await.to_string();
    let expected = "CSI driver grow-unable.csi.test supports neither resize nor modify: ";
    assert!(text.starts_with(expected), "{text}");
    fixture.stop().await;
}

#[tokio::test]
async fn what_cannot_be_is_asked_for_seldom_and_given_up_for_less() {
    let Some(mut fixture) = Fixture::new("grow-infeasible").await else { return };
    fixture.driver.answer(Answer::Error(Status::out_of_range("too large")));
    fixture.growing_class().await;
    let five = |it: &mut Value| it["spec"]["resources"]["requests"] = json!({ "storage": "5Gi" });
    fixture.bound(five, |_| {}, json!({})).await;
    fixture.start().await;
    let error = "rpc error: code = OutOfRange desc = too large";
    let expand = format!("{} -> OutOfRange", fixture.expand_line(5));
    fixture.expect([fixture.begin_line(5), expand, fixture.refused_line(error, true)]).await;
    let failed = format!(
        "resize volume \"grow-infeasible\" by resizer \"grow-infeasible.csi.test\" failed: {error}"
    );
    let resizing = "External resizer is resizing volume grow-infeasible";
    fixture.expect_events([(RESIZING, resizing), ("VolumeResizeFailed", &failed)]).await;

    fixture.journal.clear();
    fixture.ask_for("3Gi").await;
    let begin = begin_after_refusal_line(&fixture, 3);
    let [_, expand, resized, finish] = fixture.grow_lines(3);
    fixture.expect([begin, expand, resized, finish]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn an_infeasible_growth_is_tried_again_after_the_longest_pause() {
    let Some(mut fixture) = Fixture::new("grow-slow").await else { return };
    fixture.options.backoff.max = Duration::from_millis(200);
    fixture.driver.answer(Answer::Error(Status::not_found("where is it")));
    fixture.claim().await;
    fixture.start().await;
    let error = "rpc error: code = NotFound desc = where is it";
    let [begin, expand, resized, _] = fixture.grow_lines(2);
    let lost = format!("{expand} -> NotFound");
    let finish = finish_after_refusal_line(&fixture, 2);
    fixture.expect([begin, lost, fixture.refused_line(error, true), expand, resized, finish]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_failure_that_may_pass_is_shown_and_cleared() {
    let Some(mut fixture) = Fixture::new("grow-final").await else { return };
    fixture.driver.answer(Answer::Error(Status::internal("broken")));
    fixture.claim().await;
    fixture.start().await;
    let error = "rpc error: code = Internal desc = broken";
    let [begin, expand, resized, _] = fixture.grow_lines(2);
    let failed = format!("{expand} -> Internal");
    let refused = fixture.refused_line(error, false);
    let finish = finish_after_refusal_line(&fixture, 2);
    fixture.expect([begin, failed, refused, expand, resized, finish]).await;
    assert_eq!(fixture.status().await["conditions"], Value::Null);
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_may_still_be_at_work_is_asked_again_for_the_same() {
    let Some(mut fixture) = Fixture::new("grow-uncertain").await else { return };
    fixture.options.backoff.first = Duration::from_mins(1);
    fixture.driver.answer(Answer::Error(Status::aborted("pending")));
    fixture.growing_class().await;
    fixture.claim().await;
    fixture.start().await;
    let aborted = format!("{} -> Aborted", fixture.expand_line(2));
    fixture.expect([fixture.begin_line(2), aborted]).await;
    fixture.journal.clear();
    // The new size waits for the size in progress.
    fixture.ask_for("3Gi").await;
    let [_, expand, resized, finish] = fixture.grow_lines(2);
    let lines = fixture.journal.wait_for(7).await;
    let lines: Vec<String> = lines.iter().map(|line| untimed(line)).collect();
    assert_eq!(lines[..3], [expand, resized, finish]);
    assert_eq!(lines[4..6], fixture.grow_lines(3)[1..3]);
    fixture.stop().await;
}

/// The claim requests 2Gi, and an earlier process began to expand to 10Gi.
async fn begun_before(name: &'static str) -> Option<Fixture> {
    let fixture = Fixture::new(name).await?;
    let begun = json!({
        "allocatedResources": { "storage": "10Gi" },
        "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
    });
    fixture.bound(|_| {}, |_| {}, begun).await;
    Some(fixture)
}

fn goes_on_line(fixture: &Fixture) -> String {
    fixture.claim_line(&json!({
        "metadata": { "resourceVersion": "*" },
        "status": {
            "allocatedResources": { "storage": "10Gi" },
            "conditions": [condition("Resizing", None)],
        },
    }))
}

#[tokio::test]
async fn what_was_begun_before_a_restart_is_finished_first() {
    let Some(mut fixture) = begun_before("grow-restart").await else { return };
    fixture.start().await;
    let [_, expand, resized, finish] = fixture.grow_lines(10);
    fixture.expect([goes_on_line(&fixture), expand, resized, finish]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn what_was_begun_before_a_restart_and_cannot_be_gives_way_to_what_is_asked_for() {
    let Some(mut fixture) = begun_before("grow-give-way").await else { return };
    fixture.driver.answer(Answer::Error(Status::out_of_range("too large")));
    fixture.start().await;
    let error = "rpc error: code = OutOfRange desc = too large";
    let refused = fixture.refused_line(error, true);
    let lost = format!("{} -> OutOfRange", fixture.expand_line(10));
    let begin = begin_after_refusal_line(&fixture, 2);
    let [_, expand, resized, finish] = fixture.grow_lines(2);
    fixture.expect([goes_on_line(&fixture), lost, refused, begin, expand, resized, finish]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn what_is_not_ours_or_not_due_is_left_alone() {
    let Some(mut fixture) = Fixture::new("grow-barrier").await else { return };
    let other = |name| async move { Fixture::new(name).await.unwrap() };
    let driver = json!(fixture.options.driver);
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
    fixture.start().await;
    fixture.claim().await;
    fixture.expect(fixture.grow_lines(2)).await;
    fixture.stop().await;
}
