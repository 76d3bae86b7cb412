//! A driver that returns each gRPC code once and then succeeds.

use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;

use super::{
    expand,
    fixture::{CLAIMS, Fixture},
    modify,
};
use crate::{
    codes::{UNCERTAIN, each, error, go_name, text},
    driver::Answer,
};

/// The path of the status of a claim, whose name is that of its code.
async fn status(fixture: &Fixture, name: &str) -> Value {
    fixture.get_at(&format!("{CLAIMS}/{name}")).await.unwrap()["status"].take()
}

#[tokio::test]
async fn whatever_a_growth_fails_with_is_judged_and_tried_again() {
    let infeasible = [Code::InvalidArgument, Code::NotFound, Code::OutOfRange];
    let Some(mut fixture) = Fixture::new("codes-expand").await else { return };
    fixture.options.backoff.max = Duration::from_millis(50);
    for (code, name) in each(fixture.name) {
        fixture.driver.answer_about(&name, Answer::Error(error(code)));
        fixture.bound_as(&name, |_| {}, |_| {}, json!({})).await;
    }
    fixture.start().await;
    let [begin, expand, resized, finish] = fixture.grow_lines(2);
    for (code, name) in each(fixture.name) {
        let lost = format!("{expand} -> {code:?}");
        let refused = fixture.refused_line(&text(code), infeasible.contains(&code));
        let ended = expand::finish_after_refusal_line(&fixture, 2);
        let expected = match UNCERTAIN.contains(&code) {
            true => vec![&begin, &lost, &expand, &resized, &finish],
            false => vec![&begin, &lost, &refused, &expand, &resized, &ended],
        };
        let lines = fixture.about(&name, expected.len()).await;
        assert_eq!(lines.iter().collect::<Vec<_>>(), expected);
        let failed = format!(
            "resize volume {name:?} by resizer \"codes-expand.csi.test\" failed: {}",
            text(code)
        );
        fixture.event("VolumeResizeFailed", &failed).await;
        let status = status(&fixture, &name).await;
        assert_eq!(status["capacity"]["storage"], "2Gi", "{code:?}");
        assert_eq!(
            (&status["conditions"], &status["allocatedResourceStatuses"]),
            (&Value::Null, &Value::Null),
            "{code:?}"
        );
    }
    fixture.stop().await;
}

#[tokio::test]
async fn whatever_a_change_fails_with_is_judged_and_tried_again() {
    let Some(mut fixture) = modify::modifier("codes-modify").await else { return };
    fixture.options.backoff.max = Duration::from_millis(50);
    modify::class(&fixture, "gold").await;
    for (code, name) in each(fixture.name) {
        fixture.driver.answer_about(&name, Answer::Error(error(code)));
        let wish =
            |it: &mut Value| it["spec"]["volumeAttributesClassName"] = json!("codes-modify-gold");
        fixture.bound_as(&name, wish, wish, json!({})).await;
    }
    fixture.start().await;
    let [begin, again] = [true, false].map(|new| modify::begin_line(&fixture, "gold", new));
    let (call, volume) =
        (modify::call_line(&fixture, "gold"), modify::volume_line(&fixture, "gold"));
    let complete = modify::complete_line(&fixture, "gold", modify::BOTH);
    for (code, name) in each(fixture.name) {
        let lost = format!("{call} -> {code:?}");
        let failed =
            |state, text| modify::failed_line(&fixture, "gold", &go_name(code), state, text);
        let (failed, still) = match code {
            Code::InvalidArgument => (failed("Infeasible", modify::FAILED), ""),
            code if UNCERTAIN.contains(&code) => (
                failed("InProgress", modify::GOES_ON),
                ". Still modifying to VAC codes-modify-gold",
            ),
            _ => (failed("InProgress", modify::FAILED), ""),
        };
        let expected = match UNCERTAIN.contains(&code) {
            // A call whose outcome is unknown is not replaced by another one.
            true => vec![&begin, &lost, &failed, &call, &volume, &complete],
            false => vec![&begin, &lost, &failed, &again, &call, &volume, &complete],
        };
        let lines = fixture.about(&name, expected.len()).await;
        assert_eq!(lines.iter().collect::<Vec<_>>(), expected);
        fixture.event("VolumeModifyFailed", &format!("{}{still}", text(code))).await;
        let status = status(&fixture, &name).await;
        assert_eq!(status["currentVolumeAttributesClassName"], "codes-modify-gold", "{code:?}");
        assert_eq!(
            (&status["conditions"], &status["modifyVolumeStatus"]),
            (&Value::Null, &Value::Null),
            "{code:?}"
        );
    }
    fixture.stop().await;
}
