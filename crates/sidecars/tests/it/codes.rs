//! A driver that returns each gRPC code once and then succeeds: the resulting attachments, and
//! helpers for the same tests of other controllers.

use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    driver::Answer,
    fixture::{ATTACHMENTS, Fixture},
};

/// The codes after which the outcome is unknown.
pub(crate) const UNCERTAIN: [Code; 5] = [
    Code::Cancelled,
    Code::DeadlineExceeded,
    Code::ResourceExhausted,
    Code::Aborted,
    Code::Unavailable,
];

/// Each error code, and the name of the object that gets it.
pub(crate) fn each(test: &str) -> Vec<(Code, String)> {
    let codes = (1..=16).map(Code::from_i32);
    codes.map(|code| (code, format!("{test}-{code:?}").to_lowercase())).collect()
}

/// The driver's error.
pub(crate) fn error(code: Code) -> Status {
    Status::new(code, "no")
}

/// The name of a code.
pub(crate) fn go_name(code: Code) -> String {
    match code {
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    }
}

/// The error as written to statuses and events.
pub(crate) fn text(code: Code) -> String {
    format!("rpc error: code = {} desc = no", go_name(code))
}

/// Creates a volume and its attachment for each code, which the driver returns first.
async fn attachments(fixture: &Fixture, change: impl Fn(&mut Value)) {
    fixture.node().await;
    for (code, name) in each(fixture.name) {
        fixture.driver.answer_about(&name, Answer::Error(error(code)));
        fixture.pair(&name, |_| {}, &change).await;
    }
}

#[tokio::test]
async fn whatever_an_attach_fails_with_is_shown_and_tried_again() {
    let Some(mut fixture) = Fixture::new("codes-attach", &[]).await else { return };
    attachments(&fixture, |_| {}).await;
    fixture.start();
    let [protect, prepare, publish, attached] = fixture.attach_lines();
    for (code, name) in each(fixture.name) {
        let refused = format!("{publish} -> {code:?}");
        let shown = fixture.attach_error_line(&text(code), Some(code as i32));
        let expected = [&protect, &prepare, &refused, &shown, &publish, &attached];
        assert_eq!(
            fixture.journal.about(&name, fixture.name, expected.len()).await,
            expected.map(String::as_str)
        );
        let attachment = fixture.get_at(&format!("{ATTACHMENTS}/{name}")).await.unwrap();
        let status = json!({ "attached": true, "attachmentMetadata": { "device": "sda" } });
        assert_eq!(attachment["status"], status, "{code:?}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn whatever_a_detach_fails_with_is_shown_and_tried_again() {
    let Some(mut fixture) = Fixture::new("codes-detach", &[]).await else { return };
    let finalizers = json!([fixture.finalizer()]);
    attachments(&fixture, |it| it["metadata"]["finalizers"] = finalizers.clone()).await;
    for (_, name) in each(fixture.name) {
        fixture.delete_at(&format!("{ATTACHMENTS}/{name}")).await;
    }
    fixture.start();
    let (unpublish, release) = (fixture.unpublish_line(), fixture.release_line());
    for (code, name) in each(fixture.name) {
        let refused = format!("{unpublish} -> {code:?}");
        let expected = [&refused, &fixture.detach_error_line(&text(code)), &unpublish, &release];
        assert_eq!(
            fixture.journal.about(&name, fixture.name, expected.len()).await,
            expected.map(String::as_str)
        );
        assert_eq!(fixture.get_at(&format!("{ATTACHMENTS}/{name}")).await, None, "{code:?}");
    }
    fixture.stop().await;
}
