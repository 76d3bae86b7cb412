//! VolumeAttributesClasses that are missing, of another driver, or created again.

use serde_json::json;
use tonic::Status;

use super::{
    fixture::CLASSES,
    modify::{
        BOTH, FAILED, begin_line, call_line, claim, class, complete_line, failed_line, modifier,
        volume_line,
    },
};
use crate::driver::Answer;

#[tokio::test]
async fn a_class_that_is_not_there_is_waited_for() {
    let Some(mut fixture) = modifier("modify-pending").await else { return };
    claim(&fixture, "gold", |_| {}, json!({})).await;
    fixture.start().await;
    let pending = fixture.claim_line(&json!({
        "metadata": { "resourceVersion": "*" },
        "status": { "modifyVolumeStatus": { "status": "Pending" } },
    }));
    fixture.expect([pending]).await;
    fixture
        .first_events([("VolumeModifyFailed", "VAC \"modify-pending-gold\" does not exist.")])
        .await;
    fixture.journal.clear();
    class(&fixture, "gold").await;
    let lines = [
        begin_line(&fixture, "gold", true),
        call_line(&fixture, "gold"),
        volume_line(&fixture, "gold"),
        complete_line(&fixture, "gold", &["ModifyingVolume"]),
    ];
    fixture.expect(lines).await;
    fixture.stop().await;
}

/// Kubernetes' e2e suite gives a claim a class of a driver that does not exist, and expects
/// `Infeasible`.
#[tokio::test]
async fn a_class_of_another_driver_is_tried_and_gives_way_to_a_valid_one() {
    let Some(mut fixture) = modifier("modify-foreign").await else { return };
    fixture.one_driver = true;
    fixture.driver.answer(Answer::Error(Status::invalid_argument("no")));
    let foreign = json!({
        "metadata": { "name": "modify-foreign-lead" },
        "driverName": "modify-foreign.csi.test-default",
        "parameters": { "tier": "lead" },
    });
    fixture.create(CLASSES, "VolumeAttributesClass", foreign).await;
    class(&fixture, "gold").await;
    claim(&fixture, "lead", |_| {}, json!({})).await;
    fixture.start().await;
    let refused = format!("{} -> InvalidArgument", call_line(&fixture, "lead"));
    let failed = failed_line(&fixture, "lead", "InvalidArgument", "Infeasible", FAILED);
    fixture.expect([begin_line(&fixture, "lead", true), refused, failed]).await;
    let modifying =
        "external resizer is modifying volume modify-foreign with vac modify-foreign-lead";
    let error = "rpc error: code = InvalidArgument desc = no";
    fixture.expect_events([("VolumeModify", modifying), ("VolumeModifyFailed", error)]).await;
    let status = fixture.status().await["modifyVolumeStatus"].take();
    let target = "modify-foreign-lead";
    let expected = json!({ "status": "Infeasible", "targetVolumeAttributesClassName": target });
    assert_eq!(status, expected);

    fixture.journal.clear();
    fixture.wish("modify-foreign-gold").await;
    let lines = [
        begin_line(&fixture, "gold", false),
        call_line(&fixture, "gold"),
        volume_line(&fixture, "gold"),
        complete_line(&fixture, "gold", BOTH),
    ];
    fixture.expect(lines).await;
    assert_eq!(fixture.status().await["currentVolumeAttributesClassName"], "modify-foreign-gold");
    fixture.stop().await;
}

#[tokio::test]
async fn a_class_that_is_created_again_is_tried_at_once() {
    let Some(mut fixture) = modifier("modify-again").await else { return };
    fixture.driver.answer(Answer::Error(Status::invalid_argument("no")));
    class(&fixture, "gold").await;
    claim(&fixture, "gold", |_| {}, json!({})).await;
    fixture.start().await;
    fixture.journal.wait_for(3).await;
    // After its event the refusal waits for the longest back-off.
    fixture.event("VolumeModifyFailed", "rpc error: code = InvalidArgument desc = no").await;
    fixture.journal.clear();
    let of = format!("{CLASSES}/modify-again-gold");
    fixture.patch_at(&of, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete_at(&of).await;
    class(&fixture, "gold").await;
    let lines = [
        begin_line(&fixture, "gold", false),
        call_line(&fixture, "gold"),
        volume_line(&fixture, "gold"),
        complete_line(&fixture, "gold", BOTH),
    ];
    fixture.expect(lines).await;
    fixture.stop().await;
}
