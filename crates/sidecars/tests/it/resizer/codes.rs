//! A driver that answers each code there is, once, and then as it should.

use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;

use super::bench::{Bench, CLAIMS};
use super::{expand, modify};
use crate::codes::{UNCERTAIN, each, error, go_name, text};
use crate::driver::Answer;

/// Where a claim's status is, under the name that meets a code.
async fn status(bench: &Bench, name: &str) -> Value {
    bench.get_at(&format!("{CLAIMS}/{name}")).await.unwrap()["status"].take()
}

#[tokio::test]
async fn whatever_a_growth_fails_with_is_judged_and_tried_again() {
    let infeasible = [Code::InvalidArgument, Code::NotFound, Code::OutOfRange];
    let Some(mut bench) = Bench::new("codes-expand").await else { return };
    bench.options.backoff.max = Duration::from_millis(50);
    for (code, name) in each(bench.name) {
        bench.driver.answer_about(&name, Answer::Error(error(code)));
        bench.bound_as(&name, |_| {}, |_| {}, json!({})).await;
    }
    bench.start().await;
    let [begin, expand, resized, finish] = bench.grow_lines(2);
    for (code, name) in each(bench.name) {
        let lost = format!("{expand} -> {code:?}");
        let refused = bench.refused_line(&text(code), infeasible.contains(&code));
        let ended = expand::finish_after_refusal_line(&bench, 2);
        let expected = match UNCERTAIN.contains(&code) {
            true => vec![&begin, &lost, &expand, &resized, &finish],
            false => vec![&begin, &lost, &refused, &expand, &resized, &ended],
        };
        let lines = bench.about(&name, expected.len()).await;
        assert_eq!(lines.iter().collect::<Vec<_>>(), expected);
        let failed = format!(
            "resize volume {name:?} by resizer \"codes-expand.csi.test\" failed: {}",
            text(code)
        );
        bench.event("VolumeResizeFailed", &failed).await;
        let status = status(&bench, &name).await;
        assert_eq!(status["capacity"]["storage"], "2Gi", "{code:?}");
        assert_eq!(
            (&status["conditions"], &status["allocatedResourceStatuses"]),
            (&Value::Null, &Value::Null),
            "{code:?}"
        );
    }
    bench.stop().await;
}

#[tokio::test]
async fn whatever_a_change_fails_with_is_judged_and_tried_again() {
    let Some(mut bench) = modify::modifier("codes-modify").await else { return };
    bench.options.backoff.max = Duration::from_millis(50);
    modify::class(&bench, "gold").await;
    for (code, name) in each(bench.name) {
        bench.driver.answer_about(&name, Answer::Error(error(code)));
        let wish =
            |it: &mut Value| it["spec"]["volumeAttributesClassName"] = json!("codes-modify-gold");
        bench.bound_as(&name, wish, wish, json!({})).await;
    }
    bench.start().await;
    let [begin, again] = [true, false].map(|new| modify::begin_line(&bench, "gold", new));
    let (call, volume) = (modify::call_line(&bench, "gold"), modify::volume_line(&bench, "gold"));
    let complete = modify::complete_line(&bench, "gold", modify::BOTH);
    for (code, name) in each(bench.name) {
        let lost = format!("{call} -> {code:?}");
        let failed = |state, text| modify::failed_line(&bench, "gold", &go_name(code), state, text);
        let (failed, still) = match code {
            Code::InvalidArgument => (failed("Infeasible", modify::FAILED), ""),
            code if UNCERTAIN.contains(&code) => (
                failed("InProgress", modify::GOES_ON),
                ". Still modifying to VAC codes-modify-gold",
            ),
            _ => (failed("InProgress", modify::FAILED), ""),
        };
        let expected = match UNCERTAIN.contains(&code) {
            // What may be under way is not begun again.
            true => vec![&begin, &lost, &failed, &call, &volume, &complete],
            false => vec![&begin, &lost, &failed, &again, &call, &volume, &complete],
        };
        let lines = bench.about(&name, expected.len()).await;
        assert_eq!(lines.iter().collect::<Vec<_>>(), expected);
        bench.event("VolumeModifyFailed", &format!("{}{still}", text(code))).await;
        let status = status(&bench, &name).await;
        assert_eq!(status["currentVolumeAttributesClassName"], "codes-modify-gold", "{code:?}");
        assert_eq!(
            (&status["conditions"], &status["modifyVolumeStatus"]),
            (&Value::Null, &Value::Null),
            "{code:?}"
        );
    }
    bench.stop().await;
}
