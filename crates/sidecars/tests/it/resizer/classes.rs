//! VolumeAttributesClasses that are missing, of another driver, or created again.

use serde_json::json;
use tonic::Status;

use super::bench::CLASSES;
use super::modify::{
    BOTH, FAILED, begin_line, call_line, claim, class, complete_line, failed_line, modifier,
    volume_line,
};
use crate::driver::Answer;

#[tokio::test]
async fn a_class_that_is_not_there_is_waited_for() {
    let Some(mut bench) = modifier("modify-pending").await else { return };
    claim(&bench, "gold", |_| {}, json!({})).await;
    bench.start().await;
    let pending = bench.claim_line(&json!({
        "metadata": { "resourceVersion": "*" },
        "status": { "modifyVolumeStatus": { "status": "Pending" } },
    }));
    bench.expect([pending]).await;
    bench
        .first_events([("VolumeModifyFailed", "VAC \"modify-pending-gold\" does not exist.")])
        .await;
    bench.journal.clear();
    class(&bench, "gold").await;
    let lines = [
        begin_line(&bench, "gold", true),
        call_line(&bench, "gold"),
        volume_line(&bench, "gold"),
        complete_line(&bench, "gold", &["ModifyingVolume"]),
    ];
    bench.expect(lines).await;
    bench.stop().await;
}

/// Kubernetes' e2e suite gives a claim a class of a driver that does not exist, and expects `Infeasible`.
#[tokio::test]
async fn a_class_of_another_driver_is_tried_and_gives_way_to_a_valid_one() {
    let Some(mut bench) = modifier("modify-foreign").await else { return };
    bench.one_driver = true;
    bench.driver.answer(Answer::Error(Status::invalid_argument("no")));
    let foreign = json!({
        "metadata": { "name": "modify-foreign-lead" },
        "driverName": "modify-foreign.csi.test-default",
        "parameters": { "tier": "lead" },
    });
    bench.create(CLASSES, "VolumeAttributesClass", foreign).await;
    class(&bench, "gold").await;
    claim(&bench, "lead", |_| {}, json!({})).await;
    bench.start().await;
    let refused = format!("{} -> InvalidArgument", call_line(&bench, "lead"));
    let failed = failed_line(&bench, "lead", "InvalidArgument", "Infeasible", FAILED);
    bench.expect([begin_line(&bench, "lead", true), refused, failed]).await;
    let modifying =
        "external resizer is modifying volume modify-foreign with vac modify-foreign-lead";
    let error = "rpc error: code = InvalidArgument desc = no";
    bench.expect_events([("VolumeModify", modifying), ("VolumeModifyFailed", error)]).await;
    let status = bench.status().await["modifyVolumeStatus"].take();
    let target = "modify-foreign-lead";
    let expected = json!({ "status": "Infeasible", "targetVolumeAttributesClassName": target });
    assert_eq!(status, expected);

    bench.journal.clear();
    bench.wish("modify-foreign-gold").await;
    let lines = [
        begin_line(&bench, "gold", false),
        call_line(&bench, "gold"),
        volume_line(&bench, "gold"),
        complete_line(&bench, "gold", BOTH),
    ];
    bench.expect(lines).await;
    assert_eq!(bench.status().await["currentVolumeAttributesClassName"], "modify-foreign-gold");
    bench.stop().await;
}

#[tokio::test]
async fn a_class_that_is_created_again_is_tried_at_once() {
    let Some(mut bench) = modifier("modify-again").await else { return };
    bench.driver.answer(Answer::Error(Status::invalid_argument("no")));
    class(&bench, "gold").await;
    claim(&bench, "gold", |_| {}, json!({})).await;
    bench.start().await;
    bench.journal.wait_for(3).await;
    // The refusal rests once its event is told.
    bench.event("VolumeModifyFailed", "rpc error: code = InvalidArgument desc = no").await;
    bench.journal.clear();
    let of = format!("{CLASSES}/modify-again-gold");
    bench.patch_at(&of, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete_at(&of).await;
    class(&bench, "gold").await;
    let lines = [
        begin_line(&bench, "gold", false),
        call_line(&bench, "gold"),
        volume_line(&bench, "gold"),
        complete_line(&bench, "gold", BOTH),
    ];
    bench.expect(lines).await;
    bench.stop().await;
}
