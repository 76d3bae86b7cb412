use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::controller_service_capability::rpc;

use super::{
    driver::DriverCapabilities,
    fixture::{CLAIMS, CLASSES, Fixture, VOLUMES},
};
use crate::driver::Answer;

pub(super) async fn modifier(name: &'static str) -> Option<Fixture> {
    let controller = vec![rpc::Type::ModifyVolume];
    Fixture::with(name, DriverCapabilities { controller, ..DriverCapabilities::default() }).await
}

/// A class of the driver, with the test's name as prefix.
pub(super) async fn class(fixture: &Fixture, suffix: &str) {
    let class = json!({
        "metadata": { "name": format!("{}-{suffix}", fixture.name) },
        "driverName": fixture.options.driver,
        "parameters": { "tier": suffix },
    });
    fixture.create(CLASSES, "VolumeAttributesClass", class).await;
}

/// A claim that requests the class, bound to a volume edited by `change`.
pub(super) async fn claim(
    fixture: &Fixture,
    suffix: &str,
    change: impl FnOnce(&mut Value),
    status: Value,
) {
    let class = json!(format!("{}-{suffix}", fixture.name));
    let wish = |it: &mut Value| it["spec"]["volumeAttributesClassName"] = class.clone();
    let other = |it: &mut Value| {
        it["spec"]["volumeAttributesClassName"] = class.clone();
        change(it);
    };
    fixture.bound(wish, other, status).await;
}

fn condition(kind: &str, reason: Option<&str>, message: &str, new: bool) -> Value {
    let mut condition = json!({
        "lastProbeTime": "*", "message": message, "reason": reason, "status": "True", "type": kind,
    });
    if new {
        condition["lastTransitionTime"] = json!("*");
    }
    condition
}

pub(super) fn begin_line(fixture: &Fixture, suffix: &str, new: bool) -> String {
    let class = format!("{}-{suffix}", fixture.name);
    let message = format!("Modifying volume to {class:?} is in progress.");
    fixture.claim_line(&json!({
        "metadata": { "resourceVersion": "*" },
        "status": {
            "conditions": [condition("ModifyingVolume", None, &message, new)],
            "modifyVolumeStatus": { "status": "InProgress", "targetVolumeAttributesClassName": class },
        },
    }))
}

pub(super) fn call_line(fixture: &Fixture, suffix: &str) -> String {
    format!("ControllerModifyVolume {}-handle tier={suffix}", fixture.name)
}

pub(super) fn volume_line(fixture: &Fixture, suffix: &str) -> String {
    let class = format!("{}-{suffix}", fixture.name);
    fixture.volume_line(&json!({ "spec": { "volumeAttributesClassName": class } }))
}

pub(super) fn complete_line(fixture: &Fixture, suffix: &str, conditions: &[&str]) -> String {
    let gone: Vec<Value> =
        conditions.iter().map(|kind| json!({ "$patch": "delete", "type": kind })).collect();
    fixture.claim_line(&json!({ "status": {
        "conditions": gone,
        "currentVolumeAttributesClassName": format!("{}-{suffix}", fixture.name),
        "modifyVolumeStatus": null,
    }}))
}

pub(super) fn failed_line(
    fixture: &Fixture,
    suffix: &str,
    code: &str,
    state: &str,
    text: &str,
) -> String {
    let class = format!("{}-{suffix}", fixture.name);
    let message = format!("Modifying volume to {class:?} {text}");
    fixture.claim_line(&json!({
        "metadata": { "resourceVersion": "*" },
        "status": {
            "conditions": [
                condition("ModifyingVolume", None, &message, false),
                condition("ModifyVolumeError", Some(code), "no", true),
            ],
            "modifyVolumeStatus": { "status": state },
        },
    }))
}

pub(super) const FAILED: &str = "failed. Waiting for retry.";
pub(super) const GOES_ON: &str = "is still in progress.";
pub(super) const BOTH: &[&str] = &["ModifyingVolume", "ModifyVolumeError"];

#[tokio::test]
async fn a_volume_is_modified_step_by_step() {
    let Some(mut fixture) = modifier("modify-steps").await else { return };
    class(&fixture, "gold").await;
    claim(&fixture, "gold", |_| {}, json!({})).await;
    fixture.start().await;
    let lines = [
        begin_line(&fixture, "gold", true),
        call_line(&fixture, "gold"),
        volume_line(&fixture, "gold"),
        complete_line(&fixture, "gold", &["ModifyingVolume"]),
    ];
    fixture.expect(lines).await;
    let modifying = "external resizer is modifying volume modify-steps with vac modify-steps-gold";
    let modified =
        "external resizer modified volume modify-steps with vac modify-steps-gold successfully";
    fixture
        .expect_events([("VolumeModify", modifying), ("VolumeModifySuccessful", modified)])
        .await;
    let status = fixture.status().await;
    assert_eq!(status["currentVolumeAttributesClassName"], "modify-steps-gold");
    assert_eq!(
        (&status["conditions"], &status["modifyVolumeStatus"]),
        (&Value::Null, &Value::Null)
    );

    // The next request is fulfilled as well.
    fixture.journal.clear();
    class(&fixture, "silver").await;
    fixture.wish("modify-steps-silver").await;
    fixture.journal.wait_for(4).await;
    let volume = fixture.get(VOLUMES).await.unwrap();
    assert_eq!(volume["spec"]["volumeAttributesClassName"], "modify-steps-silver");
    fixture.stop().await;
}

#[tokio::test]
async fn the_driver_is_told_names_and_secrets() {
    let Some(mut fixture) = modifier("modify-fields").await else { return };
    fixture.options.extra_metadata = true;
    let secret =
        json!({ "metadata": { "name": "modify-fields" }, "stringData": { "key": "hush" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    class(&fixture, "gold").await;
    let annotated = |it: &mut Value| {
        it["metadata"]["annotations"] = json!({
            "volume.kubernetes.io/controller-modify-secret-name": "modify-fields",
            "volume.kubernetes.io/controller-modify-secret-namespace": "default",
        });
        let other = json!({ "name": "of-growth", "namespace": "default" });
        it["spec"]["csi"]["controllerExpandSecretRef"] = other;
    };
    claim(&fixture, "gold", annotated, json!({})).await;
    fixture.start().await;
    let lines = fixture.journal.wait_for(5).await;
    assert_eq!(lines[1], "GET namespaces/default/secrets/modify-fields");
    let request = fixture.driver.modified();
    assert_eq!(request.secrets["key"], "hush");
    let told = |key: &str| request.mutable_parameters[key].clone();
    let names = [
        "csi.storage.k8s.io/pvc/name",
        "csi.storage.k8s.io/pvc/namespace",
        "csi.storage.k8s.io/pv/name",
    ];
    assert_eq!(names.map(told), ["modify-fields", "default", "modify-fields"]);
    fixture.stop().await;
}

#[tokio::test]
async fn what_cannot_be_waits_for_another_wish() {
    let Some(mut fixture) = modifier("modify-infeasible").await else { return };
    fixture.driver.answer(Answer::Error(Status::invalid_argument("no")));
    class(&fixture, "gold").await;
    class(&fixture, "silver").await;
    claim(&fixture, "gold", |_| {}, json!({})).await;
    fixture.start().await;
    let refused = format!("{} -> InvalidArgument", call_line(&fixture, "gold"));
    let failed = failed_line(&fixture, "gold", "InvalidArgument", "Infeasible", FAILED);
    fixture.expect([begin_line(&fixture, "gold", true), refused, failed]).await;
    let modifying =
        "external resizer is modifying volume modify-infeasible with vac modify-infeasible-gold";
    let error = "rpc error: code = InvalidArgument desc = no";
    fixture.expect_events([("VolumeModify", modifying), ("VolumeModifyFailed", error)]).await;
    fixture.journal.clear();
    fixture.wish("modify-infeasible-silver").await;
    let lines = [
        begin_line(&fixture, "silver", false),
        call_line(&fixture, "silver"),
        volume_line(&fixture, "silver"),
        complete_line(&fixture, "silver", BOTH),
    ];
    fixture.expect(lines).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_refusal_that_could_not_be_shown_does_not_rest() {
    let Some(mut fixture) = modifier("modify-unshown").await else { return };
    let (told, refusal) = (CancellationToken::new(), Status::invalid_argument("no"));
    fixture.driver.answer(Answer::ErrorWhen(told.clone(), refusal.clone()));
    fixture.driver.answer(Answer::Error(refusal));
    class(&fixture, "gold").await;
    claim(&fixture, "gold", |_| {}, json!({})).await;
    fixture.start().await;
    fixture.journal.wait_for(2).await;
    fixture.journal.fail_once(Method::PATCH, "modify-unshown/status", 500);
    told.cancel();
    let refused = format!("{} -> InvalidArgument", call_line(&fixture, "gold"));
    let failed = failed_line(&fixture, "gold", "InvalidArgument", "Infeasible", FAILED);
    let [begin, again] = [true, false].map(|new| begin_line(&fixture, "gold", new));
    let lost = format!("{failed} -> 500");
    fixture.expect([begin, refused.clone(), lost, again, refused, failed]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn what_may_be_under_way_is_finished_before_another_wish() {
    let Some(mut fixture) = modifier("modify-uncertain").await else { return };
    fixture.options.backoff.first = Duration::from_mins(1);
    fixture.driver.answer(Answer::Error(Status::aborted("no")));
    class(&fixture, "gold").await;
    class(&fixture, "silver").await;
    claim(&fixture, "gold", |_| {}, json!({})).await;
    fixture.start().await;
    let aborted = format!("{} -> Aborted", call_line(&fixture, "gold"));
    let failed = failed_line(&fixture, "gold", "Aborted", "InProgress", GOES_ON);
    fixture.expect([begin_line(&fixture, "gold", true), aborted, failed]).await;
    fixture.journal.clear();
    fixture.wish("modify-uncertain-silver").await;
    let lines = [
        call_line(&fixture, "gold"),
        volume_line(&fixture, "gold"),
        complete_line(&fixture, "gold", BOTH),
        begin_line(&fixture, "silver", true),
        call_line(&fixture, "silver"),
        volume_line(&fixture, "silver"),
        complete_line(&fixture, "silver", &["ModifyingVolume"]),
    ];
    fixture.expect(lines).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_new_process_does_not_know_and_finishes_first() {
    let Some(mut fixture) = modifier("modify-restart").await else { return };
    fixture.options.backoff.first = Duration::from_mins(1);
    fixture.driver.answer(Answer::Error(Status::internal("no")));
    class(&fixture, "gold").await;
    class(&fixture, "silver").await;
    claim(&fixture, "gold", |_| {}, json!({})).await;
    fixture.start().await;
    fixture.journal.wait_for(3).await;
    fixture.driver.answer(Answer::Error(Status::internal("no")));
    fixture.restart().await;
    // The final error is lost with the process.
    let failed = |suffix| {
        let class = format!("modify-restart-{suffix}");
        let message = format!("Modifying volume to {class:?} {FAILED}");
        fixture.claim_line(&json!({
            "metadata": { "resourceVersion": "*" },
            "status": {
                "conditions": [
                    condition("ModifyingVolume", None, &message, false),
                    condition("ModifyVolumeError", Some("Internal"), "no", false),
                ],
                "modifyVolumeStatus": { "status": "InProgress" },
            },
        }))
    };
    fixture.expect([format!("{} -> Internal", call_line(&fixture, "gold")), failed("gold")]).await;
    fixture.journal.clear();
    // It is known again, and the new request may begin.
    fixture.wish("modify-restart-silver").await;
    let lines = [
        begin_line(&fixture, "silver", false),
        call_line(&fixture, "silver"),
        volume_line(&fixture, "silver"),
        complete_line(&fixture, "silver", BOTH),
    ];
    fixture.expect(lines).await;
    fixture.stop().await;
}

#[tokio::test]
async fn what_was_begun_and_cannot_be_gives_way_to_another_wish() {
    let Some(mut fixture) = modifier("modify-give-way").await else { return };
    fixture.driver.answer(Answer::Error(Status::invalid_argument("no")));
    class(&fixture, "gold").await;
    class(&fixture, "silver").await;
    let begun = json!({ "modifyVolumeStatus": {
        "status": "InProgress", "targetVolumeAttributesClassName": "modify-give-way-gold",
    }});
    claim(&fixture, "silver", |_| {}, begun).await;
    fixture.start().await;
    let lines = fixture.journal.wait_for(6).await;
    assert_eq!(lines[0], format!("{} -> InvalidArgument", call_line(&fixture, "gold")));
    let calls: Vec<&String> = lines.iter().filter(|line| line.starts_with("Controller")).collect();
    assert_eq!(calls[1..], [&call_line(&fixture, "silver")]);
    let complete = complete_line(&fixture, "silver", BOTH);
    assert_eq!(lines[5], complete);
    fixture.stop().await;
}

#[tokio::test]
async fn a_wish_that_is_taken_back_is_cancelled() {
    let Some(mut fixture) = modifier("modify-cancel").await else { return };
    fixture.driver.answer(Answer::Error(Status::invalid_argument("no")));
    class(&fixture, "gold").await;
    claim(&fixture, "gold", |_| {}, json!({})).await;
    fixture.start().await;
    fixture.journal.wait_for(3).await;
    fixture.journal.clear();
    fixture.patch(CLAIMS, json!({ "spec": { "volumeAttributesClassName": null } })).await;
    let gone = json!([{ "$patch": "delete", "type": "ModifyingVolume" }]);
    fixture.expect([fixture.claim_line(&json!({ "status": { "conditions": gone } }))]).await;
    let modifying =
        "external resizer is modifying volume modify-cancel with vac modify-cancel-gold";
    let told = [
        ("VolumeModify", modifying),
        ("VolumeModifyFailed", "rpc error: code = InvalidArgument desc = no"),
        ("VolumeModifyCanceled", "Cancelled modify."),
    ];
    fixture.expect_events(told).await;
    fixture.stop().await;
}

#[tokio::test]
async fn an_api_without_classes_leaves_volumes_as_they_are() {
    let controller = vec![rpc::Type::ModifyVolume, rpc::Type::ExpandVolume];
    let capabilities = DriverCapabilities { controller, ..DriverCapabilities::default() };
    let Some(mut fixture) = Fixture::with("modify-absent", capabilities).await else { return };
    class(&fixture, "gold").await;
    claim(&fixture, "gold", |_| {}, json!({})).await;
    fixture.journal.fail_once(Method::GET, "/apis/storage.k8s.io/v1", 404);
    fixture.start().await;
    fixture.expect(fixture.grow_lines(2)).await;
    assert_eq!(fixture.journal.lists(), 3, "claims, volumes and pods, but no classes");
    fixture.stop().await;
}
