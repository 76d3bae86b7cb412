//! A driver that answers each code there is, once, and then as it should: what attachments show of it, and what other
//! controllers' tests of this kind share.

use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::bench::{ATTACHMENTS, Bench};
use crate::driver::Answer;

/// Those after which nobody knows whether the driver is at it.
pub(crate) const UNCERTAIN: [Code; 5] = [
    Code::Cancelled,
    Code::DeadlineExceeded,
    Code::ResourceExhausted,
    Code::Aborted,
    Code::Unavailable,
];

/// Each code that is an error, and the name of the object that meets it.
pub(crate) fn each(test: &str) -> Vec<(Code, String)> {
    let codes = (1..=16).map(Code::from_i32);
    codes.map(|code| (code, format!("{test}-{code:?}").to_lowercase())).collect()
}

/// The driver's error.
pub(crate) fn error(code: Code) -> Status {
    Status::new(code, "no")
}

/// The name that people know a code by.
pub(crate) fn go_name(code: Code) -> String {
    match code {
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}

/// The error, as people see it.
pub(crate) fn text(code: Code) -> String {
    format!("rpc error: code = {} desc = no", go_name(code))
}

/// A volume and its attachment for each code, which the driver answers with first.
async fn attachments(bench: &Bench, change: impl Fn(&mut Value)) {
    bench.node().await;
    for (code, name) in each(bench.name) {
        bench.driver.answer_about(&name, Answer::Error(error(code)));
        bench.pair(&name, |_| {}, &change).await;
    }
}

#[tokio::test]
async fn whatever_an_attach_fails_with_is_shown_and_tried_again() {
    let Some(mut bench) = Bench::new("codes-attach", &[]).await else { return };
    attachments(&bench, |_| {}).await;
    bench.start();
    let [protect, prepare, publish, attached] = bench.attach_lines();
    for (code, name) in each(bench.name) {
        let refused = format!("{publish} -> {code:?}");
        let shown = bench.attach_error_line(&text(code), Some(code as i32));
        let expected = [&protect, &prepare, &refused, &shown, &publish, &attached];
        assert_eq!(
            bench.journal.about(&name, bench.name, expected.len()).await,
            expected.map(String::as_str)
        );
        let attachment = bench.get_at(&format!("{ATTACHMENTS}/{name}")).await.unwrap();
        let status = json!({ "attached": true, "attachmentMetadata": { "device": "sda" } });
        assert_eq!(attachment["status"], status, "{code:?}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn whatever_a_detach_fails_with_is_shown_and_tried_again() {
    let Some(mut bench) = Bench::new("codes-detach", &[]).await else { return };
    let finalizers = json!([bench.finalizer()]);
    attachments(&bench, |it| it["metadata"]["finalizers"] = finalizers.clone()).await;
    for (_, name) in each(bench.name) {
        bench.delete_at(&format!("{ATTACHMENTS}/{name}")).await;
    }
    bench.start();
    let (unpublish, release) = (bench.unpublish_line(), bench.release_line());
    for (code, name) in each(bench.name) {
        let refused = format!("{unpublish} -> {code:?}");
        let expected = [&refused, &bench.detach_error_line(&text(code)), &unpublish, &release];
        assert_eq!(
            bench.journal.about(&name, bench.name, expected.len()).await,
            expected.map(String::as_str)
        );
        assert_eq!(bench.get_at(&format!("{ATTACHMENTS}/{name}")).await, None, "{code:?}");
    }
    bench.stop().await;
}
