use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::snapshots::{
    BEING_CREATED, BEING_DELETED, CONTENT_FINALIZER, CONTENTS, Fixture, driver::Answer,
};

const DELETE: &str = "DeleteSnapshot v-snap";

/// A content whose snapshot was taken, deleted with the annotation of the snapshot controller.
async fn deleted(name: &'static str, change: impl FnOnce(&mut Value)) -> Option<Fixture> {
    let fixture = Fixture::new(name).await?;
    fixture.class(|_| {}).await;
    fixture
        .content(|it| {
            it["metadata"]["annotations"] = json!({ BEING_DELETED: "yes" });
            change(it);
        })
        .await;
    let taken = json!({ "snapshotHandle": "v-snap", "readyToUse": true, "creationTime": 1 });
    fixture.patch_status(CONTENTS, taken).await;
    fixture.delete(CONTENTS).await;
    Some(fixture)
}

#[tokio::test]
async fn a_snapshot_is_deleted_with_its_content() {
    let Some(mut fixture) = deleted("snapdel", |_| {}).await else { return };
    fixture.start_snapshotter();
    fixture.expect([DELETE.to_owned(), fixture.release_line()]).await;
    assert!(fixture.get(CONTENTS, fixture.name).await.is_none());
    assert!(fixture.driver.last_delete().secrets.is_empty());
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_that_others_hold_loses_its_handle() {
    let held = |it: &mut Value| {
        it["metadata"]["finalizers"] = json!([CONTENT_FINALIZER, "example.com/other"]);
    };
    let Some(mut fixture) = deleted("snapdel-held", held).await else { return };
    fixture.start_snapshotter();
    let nothing = json!({
        "creationTime": null, "readyToUse": null, "restoreSize": null, "snapshotHandle": null,
    });
    let cleared = fixture.patched_status("volumesnapshotcontents", &nothing);
    fixture.expect([DELETE.to_owned(), cleared, fixture.release_line()]).await;
    let left = fixture.get(CONTENTS, fixture.name).await.unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/other"]));
    fixture.patch(CONTENTS, json!({ "metadata": { "finalizers": null } })).await;
    fixture.stop().await;
}

#[tokio::test]
async fn what_is_to_be_kept_is_kept() {
    let keep = |it: &mut Value| it["spec"]["deletionPolicy"] = json!("Retain");
    let Some(mut fixture) = deleted("snapdel-keep", keep).await else { return };
    fixture.start_snapshotter();
    fixture.expect([fixture.release_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_that_nobody_bound_needs_no_word() {
    let unbound = |it: &mut Value| {
        it["metadata"]["annotations"] = json!({});
        it["spec"]["source"] = json!({ "snapshotHandle": "h" });
        it["spec"]["volumeSnapshotRef"]["uid"] = json!("");
    };
    let Some(mut fixture) = deleted("snapdel-unbound", unbound).await else { return };
    fixture.start_snapshotter();
    fixture.expect([DELETE.to_owned(), fixture.release_line()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_failed_deletion_is_told_and_tried_again() {
    let Some(mut fixture) = deleted("snapdel-error", |_| {}).await else { return };
    fixture.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    fixture.start_snapshotter();
    let failed = format!("{DELETE} -> FailedPrecondition");
    fixture.expect([failed, DELETE.to_owned(), fixture.release_line()]).await;
    fixture.expect_events(["SnapshotDeleteError"]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_deletion_that_cannot_be_written_down_is_asked_for_again() {
    let Some(mut fixture) = deleted("snapdel-unsaved", |_| {}).await else { return };
    fixture.journal.fail_once(Method::PATCH, "volumesnapshotcontents/snapdel-unsaved", 500);
    fixture.start_snapshotter();
    let (delete, release) = (DELETE.to_owned(), fixture.release_line());
    let failed = format!("{release} -> 500");
    fixture.expect([delete.clone(), failed, delete, release]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_is_being_taken_is_deleted_after_that() {
    let Some(mut fixture) = Fixture::new("snapdel-early").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(|_| {}).await;
    let told = CancellationToken::new();
    fixture.driver.answer(Answer::When(told.clone()));
    fixture.start_snapshotter();
    fixture.expect([fixture.mark_line(), fixture.create_line()]).await;
    let word = json!({ "metadata": { "annotations": { BEING_DELETED: "yes" } } });
    fixture.patch(CONTENTS, word).await;
    fixture.delete(CONTENTS).await;
    let waiting = fixture.get(CONTENTS, fixture.name).await.unwrap();
    assert_eq!(waiting["metadata"]["annotations"][BEING_CREATED], "yes");
    told.cancel();
    let mut count = 6;
    while fixture.lines(count).await.last() != Some(&fixture.release_line()) {
        count += 1;
    }
    let lines = fixture.lines(count).await;
    let at = |wanted: &str| lines.iter().position(|line| line == wanted).unwrap();
    let order =
        [&fixture.taken_line(true), &fixture.unmark_line(), DELETE, &fixture.release_line()];
    assert!(order.map(at).is_sorted(), "{lines:#?}");
    fixture.stop().await;
}
