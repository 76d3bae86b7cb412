use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::controller_service_capability::rpc;

use super::bench::{Bench, CLAIMS, CLASSES, VOLUMES};
use super::driver::Abilities;
use crate::driver::Answer;

pub(super) async fn modifier(name: &'static str) -> Option<Bench> {
    let controller = vec![rpc::Type::ModifyVolume];
    Bench::with(name, Abilities { controller, ..Abilities::default() }).await
}

/// A class of the driver, whose name begins with the test's.
pub(super) async fn class(bench: &Bench, suffix: &str) {
    let class = json!({
        "metadata": { "name": format!("{}-{suffix}", bench.name) },
        "driverName": bench.options.driver,
        "parameters": { "tier": suffix },
    });
    bench.create(CLASSES, "VolumeAttributesClass", class).await;
}

/// A claim that asks for the class, and what `change` makes of its volume.
pub(super) async fn claim(
    bench: &Bench,
    suffix: &str,
    change: impl FnOnce(&mut Value),
    status: Value,
) {
    let class = json!(format!("{}-{suffix}", bench.name));
    let wish = |it: &mut Value| it["spec"]["volumeAttributesClassName"] = class.clone();
    let other = |it: &mut Value| {
        it["spec"]["volumeAttributesClassName"] = class.clone();
        change(it);
    };
    bench.bound(wish, other, status).await;
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

pub(super) fn begin_line(bench: &Bench, suffix: &str, new: bool) -> String {
    let class = format!("{}-{suffix}", bench.name);
    let message = format!("Modifying volume to {class:?} is in progress.");
    bench.claim_line(&json!({
        "metadata": { "resourceVersion": "*" },
        "status": {
            "conditions": [condition("ModifyingVolume", None, &message, new)],
            "modifyVolumeStatus": { "status": "InProgress", "targetVolumeAttributesClassName": class },
        },
    }))
}

pub(super) fn call_line(bench: &Bench, suffix: &str) -> String {
    format!("ControllerModifyVolume {}-handle tier={suffix}", bench.name)
}

pub(super) fn volume_line(bench: &Bench, suffix: &str) -> String {
    let class = format!("{}-{suffix}", bench.name);
    bench.volume_line(&json!({ "spec": { "volumeAttributesClassName": class } }))
}

pub(super) fn complete_line(bench: &Bench, suffix: &str, conditions: &[&str]) -> String {
    let gone: Vec<Value> =
        conditions.iter().map(|kind| json!({ "$patch": "delete", "type": kind })).collect();
    bench.claim_line(&json!({ "status": {
        "conditions": gone,
        "currentVolumeAttributesClassName": format!("{}-{suffix}", bench.name),
        "modifyVolumeStatus": null,
    }}))
}

pub(super) fn failed_line(
    bench: &Bench,
    suffix: &str,
    code: &str,
    state: &str,
    text: &str,
) -> String {
    let class = format!("{}-{suffix}", bench.name);
    let message = format!("Modifying volume to {class:?} {text}");
    bench.claim_line(&json!({
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
    let Some(mut bench) = modifier("modify-steps").await else { return };
    class(&bench, "gold").await;
    claim(&bench, "gold", |_| {}, json!({})).await;
    bench.start().await;
    let lines = [
        begin_line(&bench, "gold", true),
        call_line(&bench, "gold"),
        volume_line(&bench, "gold"),
        complete_line(&bench, "gold", &["ModifyingVolume"]),
    ];
    bench.expect(lines).await;
    let modifying = "external resizer is modifying volume modify-steps with vac modify-steps-gold";
    let modified =
        "external resizer modified volume modify-steps with vac modify-steps-gold successfully";
    bench.expect_events([("VolumeModify", modifying), ("VolumeModifySuccessful", modified)]).await;
    let status = bench.status().await;
    assert_eq!(status["currentVolumeAttributesClassName"], "modify-steps-gold");
    assert_eq!(
        (&status["conditions"], &status["modifyVolumeStatus"]),
        (&Value::Null, &Value::Null)
    );

    // The next wish is fulfilled as well.
    bench.journal.clear();
    class(&bench, "silver").await;
    bench.wish("modify-steps-silver").await;
    bench.journal.wait_for(4).await;
    let volume = bench.get(VOLUMES).await.unwrap();
    assert_eq!(volume["spec"]["volumeAttributesClassName"], "modify-steps-silver");
    bench.stop().await;
}

#[tokio::test]
async fn the_driver_is_told_names_and_secrets() {
    let Some(mut bench) = modifier("modify-fields").await else { return };
    bench.options.extra_metadata = true;
    let secret =
        json!({ "metadata": { "name": "modify-fields" }, "stringData": { "key": "hush" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    class(&bench, "gold").await;
    let annotated = |it: &mut Value| {
        it["metadata"]["annotations"] = json!({
            "volume.kubernetes.io/controller-modify-secret-name": "modify-fields",
            "volume.kubernetes.io/controller-modify-secret-namespace": "default",
        });
        let other = json!({ "name": "of-growth", "namespace": "default" });
        it["spec"]["csi"]["controllerExpandSecretRef"] = other;
    };
    claim(&bench, "gold", annotated, json!({})).await;
    bench.start().await;
    let lines = bench.journal.wait_for(5).await;
    assert_eq!(lines[1], "GET namespaces/default/secrets/modify-fields");
    let request = bench.driver.modified();
    assert_eq!(request.secrets["key"], "hush");
    let told = |key: &str| request.mutable_parameters[key].clone();
    let names = [
        "csi.storage.k8s.io/pvc/name",
        "csi.storage.k8s.io/pvc/namespace",
        "csi.storage.k8s.io/pv/name",
    ];
    assert_eq!(names.map(told), ["modify-fields", "default", "modify-fields"]);
    bench.stop().await;
}

#[tokio::test]
async fn what_cannot_be_waits_for_another_wish() {
    let Some(mut bench) = modifier("modify-infeasible").await else { return };
    bench.driver.answer(Answer::Error(Status::invalid_argument("no")));
    class(&bench, "gold").await;
    class(&bench, "silver").await;
    claim(&bench, "gold", |_| {}, json!({})).await;
    bench.start().await;
    let refused = format!("{} -> InvalidArgument", call_line(&bench, "gold"));
    let failed = failed_line(&bench, "gold", "InvalidArgument", "Infeasible", FAILED);
    bench.expect([begin_line(&bench, "gold", true), refused, failed]).await;
    let modifying =
        "external resizer is modifying volume modify-infeasible with vac modify-infeasible-gold";
    let error = "rpc error: code = InvalidArgument desc = no";
    bench.expect_events([("VolumeModify", modifying), ("VolumeModifyFailed", error)]).await;
    bench.journal.clear();
    bench.wish("modify-infeasible-silver").await;
    let lines = [
        begin_line(&bench, "silver", false),
        call_line(&bench, "silver"),
        volume_line(&bench, "silver"),
        complete_line(&bench, "silver", BOTH),
    ];
    bench.expect(lines).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_refusal_that_could_not_be_shown_does_not_rest() {
    let Some(mut bench) = modifier("modify-unshown").await else { return };
    let (told, refusal) = (CancellationToken::new(), Status::invalid_argument("no"));
    bench.driver.answer(Answer::ErrorWhen(told.clone(), refusal.clone()));
    bench.driver.answer(Answer::Error(refusal));
    class(&bench, "gold").await;
    claim(&bench, "gold", |_| {}, json!({})).await;
    bench.start().await;
    bench.journal.wait_for(2).await;
    bench.journal.fail_once(Method::PATCH, "modify-unshown/status", 500);
    told.cancel();
    let refused = format!("{} -> InvalidArgument", call_line(&bench, "gold"));
    let failed = failed_line(&bench, "gold", "InvalidArgument", "Infeasible", FAILED);
    let [begin, again] = [true, false].map(|new| begin_line(&bench, "gold", new));
    let lost = format!("{failed} -> 500");
    bench.expect([begin, refused.clone(), lost, again, refused, failed]).await;
    bench.stop().await;
}

#[tokio::test]
async fn what_may_be_under_way_is_finished_before_another_wish() {
    let Some(mut bench) = modifier("modify-uncertain").await else { return };
    bench.options.backoff.first = Duration::from_mins(1);
    bench.driver.answer(Answer::Error(Status::aborted("no")));
    class(&bench, "gold").await;
    class(&bench, "silver").await;
    claim(&bench, "gold", |_| {}, json!({})).await;
    bench.start().await;
    let aborted = format!("{} -> Aborted", call_line(&bench, "gold"));
    let failed = failed_line(&bench, "gold", "Aborted", "InProgress", GOES_ON);
    bench.expect([begin_line(&bench, "gold", true), aborted, failed]).await;
    bench.journal.clear();
    bench.wish("modify-uncertain-silver").await;
    let lines = [
        call_line(&bench, "gold"),
        volume_line(&bench, "gold"),
        complete_line(&bench, "gold", BOTH),
        begin_line(&bench, "silver", true),
        call_line(&bench, "silver"),
        volume_line(&bench, "silver"),
        complete_line(&bench, "silver", &["ModifyingVolume"]),
    ];
    bench.expect(lines).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_new_process_does_not_know_and_finishes_first() {
    let Some(mut bench) = modifier("modify-restart").await else { return };
    bench.options.backoff.first = Duration::from_mins(1);
    bench.driver.answer(Answer::Error(Status::internal("no")));
    class(&bench, "gold").await;
    class(&bench, "silver").await;
    claim(&bench, "gold", |_| {}, json!({})).await;
    bench.start().await;
    bench.journal.wait_for(3).await;
    bench.driver.answer(Answer::Error(Status::internal("no")));
    bench.restart().await;
    // The certain failure is forgotten with the process.
    let failed = |suffix| {
        let class = format!("modify-restart-{suffix}");
        let message = format!("Modifying volume to {class:?} {FAILED}");
        bench.claim_line(&json!({
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
    bench.expect([format!("{} -> Internal", call_line(&bench, "gold")), failed("gold")]).await;
    bench.journal.clear();
    // Now it is known again, and the new wish may begin.
    bench.wish("modify-restart-silver").await;
    let lines = [
        begin_line(&bench, "silver", false),
        call_line(&bench, "silver"),
        volume_line(&bench, "silver"),
        complete_line(&bench, "silver", BOTH),
    ];
    bench.expect(lines).await;
    bench.stop().await;
}

#[tokio::test]
async fn what_was_begun_and_cannot_be_gives_way_to_another_wish() {
    let Some(mut bench) = modifier("modify-give-way").await else { return };
    bench.driver.answer(Answer::Error(Status::invalid_argument("no")));
    class(&bench, "gold").await;
    class(&bench, "silver").await;
    let begun = json!({ "modifyVolumeStatus": {
        "status": "InProgress", "targetVolumeAttributesClassName": "modify-give-way-gold",
    }});
    claim(&bench, "silver", |_| {}, begun).await;
    bench.start().await;
    let lines = bench.journal.wait_for(6).await;
    assert_eq!(lines[0], format!("{} -> InvalidArgument", call_line(&bench, "gold")));
    let calls: Vec<&String> = lines.iter().filter(|line| line.starts_with("Controller")).collect();
    assert_eq!(calls[1..], [&call_line(&bench, "silver")]);
    let complete = complete_line(&bench, "silver", BOTH);
    assert_eq!(lines[5], complete);
    bench.stop().await;
}

#[tokio::test]
async fn a_wish_that_is_taken_back_is_cancelled() {
    let Some(mut bench) = modifier("modify-cancel").await else { return };
    bench.driver.answer(Answer::Error(Status::invalid_argument("no")));
    class(&bench, "gold").await;
    claim(&bench, "gold", |_| {}, json!({})).await;
    bench.start().await;
    bench.journal.wait_for(3).await;
    bench.journal.clear();
    bench.patch(CLAIMS, json!({ "spec": { "volumeAttributesClassName": null } })).await;
    let gone = json!([{ "$patch": "delete", "type": "ModifyingVolume" }]);
    bench.expect([bench.claim_line(&json!({ "status": { "conditions": gone } }))]).await;
    let modifying =
        "external resizer is modifying volume modify-cancel with vac modify-cancel-gold";
    let told = [
        ("VolumeModify", modifying),
        ("VolumeModifyFailed", "rpc error: code = InvalidArgument desc = no"),
        ("VolumeModifyCanceled", "Cancelled modify."),
    ];
    bench.expect_events(told).await;
    bench.stop().await;
}

#[tokio::test]
async fn an_api_without_classes_leaves_volumes_as_they_are() {
    let controller = vec![rpc::Type::ModifyVolume, rpc::Type::ExpandVolume];
    let abilities = Abilities { controller, ..Abilities::default() };
    let Some(mut bench) = Bench::with("modify-absent", abilities).await else { return };
    class(&bench, "gold").await;
    claim(&bench, "gold", |_| {}, json!({})).await;
    bench.journal.fail_once(Method::GET, "/apis/storage.k8s.io/v1", 404);
    bench.start().await;
    bench.expect(bench.grow_lines(2)).await;
    assert_eq!(bench.journal.lists(), 3, "claims, volumes and pods, but no classes");
    bench.stop().await;
}
