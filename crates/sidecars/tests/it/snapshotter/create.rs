use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::journal::DEADLINE;
use crate::snapshots::{Bench, CLASSES, CONTENTS, driver::Answer};

const SECRETS: &str = "/api/v1/namespaces/snap-secret/secrets";

#[tokio::test]
async fn a_snapshot_is_taken() {
    let Some(mut bench) = Bench::new("snap-create").await else { return };
    bench.class(|it| it["parameters"] = json!({ "a": "b" })).await;
    bench.content(|_| {}).await;
    bench.start_snapshotter();
    let (mark, taken) = (bench.mark_line_of(&json!({ "a": "b" })), bench.taken_line(true));
    bench.expect([mark, bench.create_line(), taken, bench.unmark_line()]).await;
    let [call] = &bench.driver.taken()[..] else { panic!() };
    assert_eq!(call.parameters, [("a".to_owned(), "b".to_owned())].into());
    assert!(call.secrets.is_empty());
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_is_not_ready_is_asked_for_again() {
    let Some(mut bench) = Bench::new("snap-unready").await else { return };
    bench.class(|_| {}).await;
    bench.content(|_| {}).await;
    bench.driver.answer(Answer::NotReady);
    bench.driver.answer(Answer::NotReady);
    bench.start_snapshotter();
    let (create, ready) = (bench.create_line(), bench.ready_line());
    let taken = bench.taken_line(false);
    let first = [bench.mark_line(), create.clone(), taken, bench.unmark_line()];
    let lines = bench.lines(7).await;
    assert_eq!(lines[..4], first, "{lines:#?}");
    assert_eq!(lines[4..], [create.clone(), create, ready], "{lines:#?}");
    bench.stop().await;
}

#[tokio::test]
async fn a_final_error_takes_the_mark_back() {
    let Some(mut bench) = Bench::new("snap-final").await else { return };
    bench.class(|_| {}).await;
    bench.content(|_| {}).await;
    bench.driver.answer(Answer::Error(Status::invalid_argument("no")));
    bench.start_snapshotter();
    let (mark, create, unmark) = (bench.mark_line(), bench.create_line(), bench.unmark_line());
    let error = bench.error_line(
        "Failed to create snapshot: failed to take snapshot of the volume v: \
         \"rpc error: code = InvalidArgument desc = no\"",
    );
    let failed = format!("{create} -> InvalidArgument");
    let lines = bench.lines(8).await;
    let first = [mark.clone(), failed, unmark.clone(), error];
    assert_eq!(lines[..4], first, "{lines:#?}");
    assert_eq!(lines[4..6], [mark, create]);
    // The error goes with the first success.
    assert!(lines[6].contains(r#""error":null"#), "{}", lines[6]);
    assert_eq!(lines[7], unmark);
    bench.expect_events(["SnapshotCreationFailed"]).await;
    bench.stop().await;
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
        let Some(mut bench) = Bench::new(name).await else { return };
        bench.class(|_| {}).await;
        bench.content(|_| {}).await;
        bench.driver.answer(Answer::Error(status));
        bench.start_snapshotter();
        let lines = bench.lines(6).await;
        assert_eq!(lines[0], bench.mark_line());
        assert!(lines[1].starts_with(&format!("{} -> ", bench.create_line())), "{lines:#?}");
        assert!(lines[2].contains("Failed to create snapshot"), "{lines:#?}");
        assert_eq!(lines[3], bench.create_line(), "it was not marked again");
        assert_eq!(lines[5], bench.unmark_line());
        bench.stop().await;
    }
}

/// The refusal of another request would not tell whether the driver has the snapshot.
#[tokio::test]
async fn a_request_is_repeated_as_it_was_when_its_class_has_changed() {
    let Some(mut bench) = Bench::new("snap-changed").await else { return };
    bench.class(|it| it["parameters"] = json!({ "a": "first" })).await;
    bench.content(|_| {}).await;
    bench.snapshotter.backoff.first = DEADLINE * 2;
    bench.driver.answer(Answer::Error(Status::deadline_exceeded("no")));
    bench.driver.answer(Answer::Error(Status::invalid_argument("no")));
    bench.start_snapshotter();
    bench.lines(3).await;
    for (value, lines) in [("second", 6), ("third", 10)] {
        bench.delete(CLASSES).await;
        bench.class(|it| it["parameters"] = json!({ "a": value })).await;
        bench.lines(lines).await;
    }
    let asked: Vec<_> = bench.driver.asked().into_iter().map(|told| told["a"].clone()).collect();
    assert_eq!(asked, ["first", "first", "third"]);
    bench.stop().await;
}

/// The driver may have the snapshot, and the parameters are noted.
#[tokio::test]
async fn a_request_is_repeated_although_its_class_is_gone_or_refused() {
    for (name, refused) in [("snap-classless", false), ("snap-class-refused", true)] {
        let Some(mut bench) = Bench::new(name).await else { return };
        bench.class(|it| it["parameters"] = json!({ "a": "first" })).await;
        bench.content(|_| {}).await;
        let never = CancellationToken::new();
        bench.driver.answer(Answer::When(never.clone()));
        bench.start_snapshotter();
        bench.lines(2).await;
        bench.stop_controllers().await;
        bench.delete(CLASSES).await;
        if refused {
            bench.class(|it| it["parameters"] = json!({ "csi.storage.k8s.io/nope": "x" })).await;
        }
        // Another process knows only what is noted.
        bench.start_snapshotter_for(&bench.socket(), DEADLINE);
        let lines = bench.lines(5).await;
        assert_eq!(lines[4], bench.unmark_line(), "{lines:#?}");
        let asked = bench.driver.asked();
        let asked: Vec<_> = asked.iter().map(|told| told.get("a").map(String::as_str)).collect();
        assert_eq!(asked, [Some("first"); 2]);
        never.cancel();
        bench.stop().await;
    }
}

/// A class without parameters leaves no note, as Go's snapshotter. The process that asked remembers it.
#[tokio::test]
async fn a_request_without_parameters_is_repeated_by_its_process_although_its_class_is_gone() {
    let Some(mut bench) = Bench::new("snap-plain").await else { return };
    bench.class(|_| {}).await;
    bench.content(|_| {}).await;
    bench.snapshotter.backoff.first = DEADLINE * 2;
    bench.driver.answer(Answer::Error(Status::deadline_exceeded("no")));
    bench.start_snapshotter();
    bench.lines(3).await;
    bench.delete(CLASSES).await;
    // A content that asks for something else is looked at again at once.
    bench.patch(CONTENTS, json!({ "spec": { "deletionPolicy": "Retain" } })).await;
    let lines = bench.lines(6).await;
    assert_eq!((&lines[3], &lines[5]), (&bench.create_line(), &bench.unmark_line()));
    bench.stop().await;
}

/// What the class says now is another request.
#[tokio::test]
async fn the_next_process_repeats_the_request_of_the_first() {
    let Some(mut bench) = Bench::new("snap-handed").await else { return };
    bench.class(|it| it["parameters"] = json!({ "a": "first" })).await;
    bench.content(|_| {}).await;
    let never = CancellationToken::new();
    bench.driver.answer(Answer::When(never.clone()));
    bench.start_snapshotter();
    bench.lines(2).await;
    bench.stop_controllers().await;
    bench.delete(CLASSES).await;
    bench.class(|it| it["parameters"] = json!({ "a": "second" })).await;
    bench.start_snapshotter_for(&bench.socket(), DEADLINE);
    let lines = bench.lines(5).await;
    assert_eq!(lines[4], bench.unmark_line(), "{lines:#?}");
    let asked: Vec<_> = bench.driver.asked().into_iter().map(|told| told["a"].clone()).collect();
    assert_eq!(asked, ["first", "first"]);
    never.cancel();
    bench.stop().await;
}

/// Such an error is about the caller, and does not tell what became of the first call.
#[tokio::test]
async fn an_error_that_tells_nothing_of_an_earlier_call_leaves_the_mark() {
    for (name, status) in [
        ("snap-exists", Status::already_exists("no")),
        ("snap-unknown-caller", Status::unauthenticated("no")),
        ("snap-not-allowed", Status::permission_denied("no")),
    ] {
        let Some(mut bench) = Bench::new(name).await else { return };
        bench.class(|_| {}).await;
        bench.content(|_| {}).await;
        bench.driver.answer(Answer::Error(Status::deadline_exceeded("no")));
        bench.driver.answer(Answer::Error(status.clone()));
        bench.start_snapshotter();
        let (mark, create, unmark) = (bench.mark_line(), bench.create_line(), bench.unmark_line());
        let lines = bench.lines(8).await;
        let calls = lines.iter().filter(|line| line.starts_with(&create)).count();
        assert_eq!((&lines[0], calls), (&mark, 3), "{lines:#?}");
        assert_eq!(lines.iter().position(|line| *line == unmark), Some(7), "{lines:#?}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_driver_is_given_secrets_and_names() {
    let Some(mut bench) = Bench::new("snap-secret").await else { return };
    bench.class(|_| {}).await;
    bench
        .content(|it| {
            it["metadata"]["annotations"] = json!({
                "snapshot.storage.kubernetes.io/deletion-secret-name": "snap-secret",
                "snapshot.storage.kubernetes.io/deletion-secret-namespace": "snap-secret",
            });
        })
        .await;
    bench.snapshotter.extra_create_metadata = true;
    bench.start_snapshotter();
    // Without its secret it is not even begun.
    let lines = bench.lines(2).await;
    assert_eq!(lines[0], "GET secrets/snap-secret -> 404");
    assert!(lines[1].contains("cannot get credentials for snapshot content"), "{lines:#?}");
    bench.create(SECRETS, "Secret", json!({ "stringData": { "key": "hush" } })).await;
    let mut count = 3;
    while bench.driver.taken().is_empty() {
        bench.lines(count).await;
        count += 1;
    }
    let [call] = &bench.driver.taken()[..] else { panic!() };
    assert_eq!(call.secrets["key"], "hush");
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshot/name"], "snap-secret");
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshot/namespace"], "snap-secret");
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshotcontent/name"], "snap-secret");
    let journal = bench.journal.lines().join("\n");
    assert!(!journal.contains("hush"), "{journal}");
    bench.stop().await;
}

#[tokio::test]
async fn a_content_without_its_class_waits_for_it() {
    let Some(mut bench) = Bench::new("snap-class").await else { return };
    bench.content(|_| {}).await;
    bench.snapshotter.backoff.first = DEADLINE * 2;
    bench.start_snapshotter();
    let message = "Failed to create snapshot: failed to get input parameters to create snapshot for content \
                   snap-class: \"volumesnapshotclass.snapshot.storage.k8s.io \\\"snap-class\\\" not found\"";
    bench.expect([bench.error_line(message)]).await;
    bench.class(|_| {}).await;
    let lines = bench.lines(5).await;
    assert_eq!(lines[2], bench.create_line(), "the class ended its back-off: {lines:#?}");
    bench.stop().await;
}

#[tokio::test]
async fn a_success_that_cannot_be_written_down_is_asked_for_again() {
    let Some(mut bench) = Bench::new("snap-unsaved").await else { return };
    bench.class(|_| {}).await;
    bench.content(|_| {}).await;
    bench.journal.fail_once(Method::PATCH, "snap-unsaved/status", 500);
    bench.start_snapshotter();
    let lines = bench.lines(7).await;
    let (create, taken) = (bench.create_line(), bench.taken_line(true));
    assert_eq!(lines[..3], [bench.mark_line(), create.clone(), format!("{taken} -> 500")]);
    assert!(lines[3].contains("error updating status"), "{lines:#?}");
    assert_eq!(lines[4], create, "the same name, and so the same snapshot");
    assert_eq!(lines[6], bench.unmark_line());
    assert_eq!(bench.driver.taken().len(), 1);
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshotter_that_dies_after_the_call_leaks_nothing() {
    let Some(mut bench) = Bench::new("snap-killed").await else { return };
    bench.class(|_| {}).await;
    bench.content(|_| {}).await;
    let never = CancellationToken::new();
    bench.driver.answer(Answer::When(never.clone()));
    bench.start_snapshotter();
    let (mark, create) = (bench.mark_line(), bench.create_line());
    bench.expect([mark.clone(), create.clone()]).await;
    bench.stop_controllers().await;
    bench.start_snapshotter_for(&bench.socket(), DEADLINE);
    let taken = bench.taken_line(true);
    bench.expect([mark, create.clone(), create, taken, bench.unmark_line()]).await;
    assert_eq!(bench.driver.taken().len(), 1);
    never.cancel();
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_asked_again() {
    let Some(mut bench) = Bench::new("snap-hangs").await else { return };
    bench.class(|_| {}).await;
    bench.content(|_| {}).await;
    let never = CancellationToken::new();
    bench.driver.answer(Answer::When(never.clone()));
    bench.start_driver();
    bench.start_snapshotter_for(&bench.socket(), Duration::from_millis(300));
    let lines = bench.lines(5).await;
    let create = bench.create_line();
    assert_eq!(lines[..2], [bench.mark_line(), create.clone()]);
    assert!(lines[2].contains("code = DeadlineExceeded"), "{lines:#?}");
    assert_eq!(lines[3], create, "the mark stays: {lines:#?}");
    never.cancel();
    bench.stop().await;
}

#[tokio::test]
async fn a_mark_that_lost_against_others_is_written_again() {
    let Some(mut bench) = Bench::new("snap-conflict").await else { return };
    bench.class(|_| {}).await;
    bench.content(|_| {}).await;
    bench.journal.fail_once(Method::PATCH, "volumesnapshotcontents/snap-conflict", 409);
    bench.start_snapshotter();
    let (mark, taken) = (bench.mark_line(), bench.taken_line(true));
    let lost = format!("{mark} -> 409");
    let get = "GET volumesnapshotcontents/snap-conflict".to_owned();
    bench.expect([lost, get, mark, bench.create_line(), taken, bench.unmark_line()]).await;
    bench.stop().await;
}
