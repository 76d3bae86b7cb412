use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{
    journal::DEADLINE,
    snapshots::{CLASSES, CONTENTS, Fixture, driver::Answer},
};

const SECRETS: &str = "/api/v1/namespaces/snap-secret/secrets";

#[tokio::test]
async fn a_snapshot_is_taken() {
    let Some(mut fixture) = Fixture::new("snap-create").await else { return };
    fixture.class(|it| it["parameters"] = json!({ "a": "b" })).await;
    fixture.content(|_| {}).await;
    fixture.start_snapshotter();
    let (mark, taken) = (fixture.mark_line_of(&json!({ "a": "b" })), fixture.taken_line(true));
    fixture.expect([mark, fixture.create_line(), taken, fixture.unmark_line()]).await;
    let [call] = &fixture.driver.taken()[..] else { panic!() };
    assert_eq!(call.parameters, [("a".to_owned(), "b".to_owned())].into());
    assert!(call.secrets.is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_is_not_ready_is_asked_for_again() {
    let Some(mut fixture) = Fixture::new("snap-unready").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(|_| {}).await;
    fixture.driver.answer(Answer::NotReady);
    fixture.driver.answer(Answer::NotReady);
    fixture.start_snapshotter();
    let (create, ready) = (fixture.create_line(), fixture.ready_line());
    let taken = fixture.taken_line(false);
    let first = [fixture.mark_line(), create.clone(), taken, fixture.unmark_line()];
    let lines = fixture.lines(7).await;
    assert_eq!(lines[..4], first, "{lines:#?}");
    assert_eq!(lines[4..], [create.clone(), create, ready], "{lines:#?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_final_error_takes_the_mark_back() {
    let Some(mut fixture) = Fixture::new("snap-final").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(|_| {}).await;
    fixture.driver.answer(Answer::Error(Status::invalid_argument("no")));
    fixture.start_snapshotter();
    let (mark, create, unmark) =
        (fixture.mark_line(), fixture.create_line(), fixture.unmark_line());
    let error = fixture.error_line(
        "Failed to create snapshot: failed to take snapshot of the volume v: \
         \"rpc error: code = InvalidArgument desc = no\"",
    );
    let failed = format!("{create} -> InvalidArgument");
    let lines = fixture.lines(8).await;
    let first = [mark.clone(), failed, unmark.clone(), error];
    assert_eq!(lines[..4], first, "{lines:#?}");
    assert_eq!(lines[4..6], [mark, create]);
    // The first success removes the error.
    assert!(lines[6].contains(r#""error":null"#), "{}", lines[6]);
    assert_eq!(lines[7], unmark);
    fixture.expect_events(["SnapshotCreationFailed"]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_mark_stays_while_the_driver_may_be_at_work() {
    for (name, status) in [
        ("snap-aborted", Status::aborted("no")),
        ("snap-exhausted", Status::resource_exhausted("no")),
        ("snap-unavailable", Status::unavailable("no")),
        ("snap-late", Status::deadline_exceeded("no")),
        ("snap-cancelled", Status::cancelled("no")),
    ] {
        let Some(mut fixture) = Fixture::new(name).await else { return };
        fixture.class(|_| {}).await;
        fixture.content(|_| {}).await;
        fixture.driver.answer(Answer::Error(status));
        fixture.start_snapshotter();
        let lines = fixture.lines(6).await;
        assert_eq!(lines[0], fixture.mark_line());
        assert!(lines[1].starts_with(&format!("{} -> ", fixture.create_line())), "{lines:#?}");
        assert!(lines[2].contains("Failed to create snapshot"), "{lines:#?}");
        assert_eq!(lines[3], fixture.create_line(), "it was not marked again");
        assert_eq!(lines[5], fixture.unmark_line());
        fixture.stop().await;
    }
}

/// A refusal of another request does not tell whether the driver has the snapshot.
#[tokio::test]
async fn a_request_is_repeated_as_it_was_when_its_class_has_changed() {
    let Some(mut fixture) = Fixture::new("snap-changed").await else { return };
    fixture.class(|it| it["parameters"] = json!({ "a": "first" })).await;
    fixture.content(|_| {}).await;
    fixture.snapshotter.backoff.first = DEADLINE * 2;
    fixture.driver.answer(Answer::Error(Status::deadline_exceeded("no")));
    fixture.driver.answer(Answer::Error(Status::invalid_argument("no")));
    fixture.start_snapshotter();
    fixture.lines(3).await;
    for (value, lines) in [("second", 6), ("third", 10)] {
        fixture.delete(CLASSES).await;
        fixture.class(|it| it["parameters"] = json!({ "a": value })).await;
        fixture.lines(lines).await;
    }
    let asked: Vec<_> = fixture.driver.asked().into_iter().map(|told| told["a"].clone()).collect();
    assert_eq!(asked, ["first", "first", "third"]);
    fixture.stop().await;
}

/// The driver may have the snapshot, and the parameters are noted.
#[tokio::test]
async fn a_request_is_repeated_although_its_class_is_gone_or_refused() {
    for (name, refused) in [("snap-classless", false), ("snap-class-refused", true)] {
        let Some(mut fixture) = Fixture::new(name).await else { return };
        fixture.class(|it| it["parameters"] = json!({ "a": "first" })).await;
        fixture.content(|_| {}).await;
        let never = CancellationToken::new();
        fixture.driver.answer(Answer::When(never.clone()));
        fixture.start_snapshotter();
        fixture.lines(2).await;
        fixture.stop_controllers().await;
        fixture.delete(CLASSES).await;
        if refused {
            fixture.class(|it| it["parameters"] = json!({ "csi.storage.k8s.io/nope": "x" })).await;
        }
        // Another process knows only the note.
        fixture.start_snapshotter_for(&fixture.socket(), DEADLINE);
        let lines = fixture.lines(5).await;
        assert_eq!(lines[4], fixture.unmark_line(), "{lines:#?}");
        let asked = fixture.driver.asked();
        let asked: Vec<_> = asked.iter().map(|told| told.get("a").map(String::as_str)).collect();
        assert_eq!(asked, [Some("first"); 2]);
        never.cancel();
        fixture.stop().await;
    }
}

/// A class without parameters leaves no note, as with Go's snapshotter. Only the process that made
/// the call knows.
#[tokio::test]
async fn a_request_without_parameters_is_repeated_by_its_process_although_its_class_is_gone() {
    let Some(mut fixture) = Fixture::new("snap-plain").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(|_| {}).await;
    fixture.snapshotter.backoff.first = DEADLINE * 2;
    fixture.driver.answer(Answer::Error(Status::deadline_exceeded("no")));
    fixture.start_snapshotter();
    fixture.lines(3).await;
    fixture.delete(CLASSES).await;
    // A content with another request is processed at once.
    fixture.patch(CONTENTS, json!({ "spec": { "deletionPolicy": "Retain" } })).await;
    let lines = fixture.lines(6).await;
    assert_eq!((&lines[3], &lines[5]), (&fixture.create_line(), &fixture.unmark_line()));
    fixture.stop().await;
}

/// With the current class it is another request.
#[tokio::test]
async fn the_next_process_repeats_the_request_of_the_first() {
    let Some(mut fixture) = Fixture::new("snap-handed").await else { return };
    fixture.class(|it| it["parameters"] = json!({ "a": "first" })).await;
    fixture.content(|_| {}).await;
    let never = CancellationToken::new();
    fixture.driver.answer(Answer::When(never.clone()));
    fixture.start_snapshotter();
    fixture.lines(2).await;
    fixture.stop_controllers().await;
    fixture.delete(CLASSES).await;
    fixture.class(|it| it["parameters"] = json!({ "a": "second" })).await;
    fixture.start_snapshotter_for(&fixture.socket(), DEADLINE);
    let lines = fixture.lines(5).await;
    assert_eq!(lines[4], fixture.unmark_line(), "{lines:#?}");
    let asked: Vec<_> = fixture.driver.asked().into_iter().map(|told| told["a"].clone()).collect();
    assert_eq!(asked, ["first", "first"]);
    never.cancel();
    fixture.stop().await;
}

/// Such an error is about the caller, and does not tell the outcome of the first call.
#[tokio::test]
async fn an_error_that_tells_nothing_of_an_earlier_call_leaves_the_mark() {
    for (name, status) in [
        ("snap-exists", Status::already_exists("no")),
        ("snap-unknown-caller", Status::unauthenticated("no")),
        ("snap-not-allowed", Status::permission_denied("no")),
    ] {
        let Some(mut fixture) = Fixture::new(name).await else { return };
        fixture.class(|_| {}).await;
        fixture.content(|_| {}).await;
        fixture.driver.answer(Answer::Error(Status::deadline_exceeded("no")));
        fixture.driver.answer(Answer::Error(status.clone()));
        fixture.start_snapshotter();
        let (mark, create, unmark) =
            (fixture.mark_line(), fixture.create_line(), fixture.unmark_line());
        let lines = fixture.lines(8).await;
        let calls = lines.iter().filter(|line| line.starts_with(&create)).count();
        assert_eq!((&lines[0], calls), (&mark, 3), "{lines:#?}");
        assert_eq!(lines.iter().position(|line| *line == unmark), Some(7), "{lines:#?}");
        fixture.stop().await;
    }
}

#[tokio::test]
async fn a_driver_is_given_secrets_and_names() {
    let Some(mut fixture) = Fixture::new("snap-secret").await else { return };
    fixture.class(|_| {}).await;
    fixture
        .content(|it| {
            it["metadata"]["annotations"] = json!({
                "snapshot.storage.kubernetes.io/deletion-secret-name": "snap-secret",
                "snapshot.storage.kubernetes.io/deletion-secret-namespace": "snap-secret",
            });
        })
        .await;
    fixture.snapshotter.extra_create_metadata = true;
    fixture.start_snapshotter();
    // Without its secret no call is made.
    let lines = fixture.lines(2).await;
    assert_eq!(lines[0], "GET secrets/snap-secret -> 404");
    assert!(lines[1].contains("cannot get credentials for snapshot content"), "{lines:#?}");
    fixture.create(SECRETS, "Secret", json!({ "stringData": { "key": "hush" } })).await;
    let mut count = 3;
    while fixture.driver.taken().is_empty() {
        fixture.lines(count).await;
        count += 1;
    }
    let [call] = &fixture.driver.taken()[..] else { panic!() };
    assert_eq!(call.secrets["key"], "hush");
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshot/name"], "snap-secret");
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshot/namespace"], "snap-secret");
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshotcontent/name"], "snap-secret");
    let journal = fixture.journal.lines().join("\n");
    assert!(!journal.contains("hush"), "{journal}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_without_its_class_waits_for_it() {
    let Some(mut fixture) = Fixture::new("snap-class").await else { return };
    fixture.content(|_| {}).await;
    fixture.snapshotter.backoff.first = DEADLINE * 2;
    fixture.start_snapshotter();
    let message = "Failed to create snapshot: failed to get input parameters to create snapshot for content \
                   snap-class: \"volumesnapshotclass.snapshot.storage.k8s.io \\\"snap-class\\\" not found\"";
    fixture.expect([fixture.error_line(message)]).await;
    fixture.class(|_| {}).await;
    let lines = fixture.lines(5).await;
    assert_eq!(lines[2], fixture.create_line(), "the class ended its back-off: {lines:#?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_success_that_cannot_be_written_down_is_asked_for_again() {
    let Some(mut fixture) = Fixture::new("snap-unsaved").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(|_| {}).await;
    fixture.journal.fail_once(Method::PATCH, "snap-unsaved/status", 500);
    fixture.start_snapshotter();
    let lines = fixture.lines(7).await;
    let (create, taken) = (fixture.create_line(), fixture.taken_line(true));
    assert_eq!(lines[..3], [fixture.mark_line(), create.clone(), format!("{taken} -> 500")]);
    assert!(lines[3].contains("error updating status"), "{lines:#?}");
    assert_eq!(lines[4], create, "the same name, and so the same snapshot");
    assert_eq!(lines[6], fixture.unmark_line());
    assert_eq!(fixture.driver.taken().len(), 1);
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshotter_that_dies_after_the_call_leaks_nothing() {
    let Some(mut fixture) = Fixture::new("snap-killed").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(|_| {}).await;
    let never = CancellationToken::new();
    fixture.driver.answer(Answer::When(never.clone()));
    fixture.start_snapshotter();
    let (mark, create) = (fixture.mark_line(), fixture.create_line());
    fixture.expect([mark.clone(), create.clone()]).await;
    fixture.stop_controllers().await;
    fixture.start_snapshotter_for(&fixture.socket(), DEADLINE);
    let taken = fixture.taken_line(true);
    fixture.expect([mark, create.clone(), create, taken, fixture.unmark_line()]).await;
    assert_eq!(fixture.driver.taken().len(), 1);
    never.cancel();
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_asked_again() {
    let Some(mut fixture) = Fixture::new("snap-hangs").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(|_| {}).await;
    let never = CancellationToken::new();
    fixture.driver.answer(Answer::When(never.clone()));
    fixture.start_driver();
    fixture.start_snapshotter_for(&fixture.socket(), Duration::from_millis(300));
    let lines = fixture.lines(5).await;
    let create = fixture.create_line();
    assert_eq!(lines[..2], [fixture.mark_line(), create.clone()]);
    assert!(lines[2].contains("code = DeadlineExceeded"), "{lines:#?}");
    assert_eq!(lines[3], create, "the mark stays: {lines:#?}");
    never.cancel();
    fixture.stop().await;
}

#[tokio::test]
async fn a_mark_that_lost_against_others_is_written_again() {
    let Some(mut fixture) = Fixture::new("snap-conflict").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(|_| {}).await;
    fixture.journal.fail_once(Method::PATCH, "volumesnapshotcontents/snap-conflict", 409);
    fixture.start_snapshotter();
    let (mark, taken) = (fixture.mark_line(), fixture.taken_line(true));
    let lost = format!("{mark} -> 409");
    let get = "GET volumesnapshotcontents/snap-conflict".to_owned();
    fixture.expect([lost, get, mark, fixture.create_line(), taken, fixture.unmark_line()]).await;
    fixture.stop().await;
}
