use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::snapshots::{
    BEING_CREATED, BEING_DELETED, Bench, CONTENT_FINALIZER, CONTENTS, driver::Answer,
};

const DELETE: &str = "DeleteSnapshot v-snap";

/// A content whose snapshot was taken, deleted with the word of the snapshot controller.
async fn deleted(name: &'static str, change: impl FnOnce(&mut Value)) -> Option<Bench> {
    let bench = Bench::new(name).await?;
    bench.class(|_| {}).await;
    bench
        .content(|it| {
            it["metadata"]["annotations"] = json!({ BEING_DELETED: "yes" });
            change(it);
        })
        .await;
    let taken = json!({ "snapshotHandle": "v-snap", "readyToUse": true, "creationTime": 1 });
    bench.patch_status(CONTENTS, taken).await;
    bench.delete(CONTENTS).await;
    Some(bench)
}

#[tokio::test]
async fn a_snapshot_is_deleted_with_its_content() {
    let Some(mut bench) = deleted("snapdel", |_| {}).await else { return };
    bench.start_snapshotter();
    bench.expect([DELETE.to_owned(), bench.release_line()]).await;
    assert!(bench.get(CONTENTS, bench.name).await.is_none());
    assert!(bench.driver.last_delete().secrets.is_empty());
    bench.stop().await;
}

#[tokio::test]
async fn a_content_that_others_hold_loses_its_handle() {
    let held = |it: &mut Value| {
        it["metadata"]["finalizers"] = json!([CONTENT_FINALIZER, "example.com/other"]);
    };
    let Some(mut bench) = deleted("snapdel-held", held).await else { return };
    bench.start_snapshotter();
    let nothing = json!({
        "creationTime": null, "readyToUse": null, "restoreSize": null, "snapshotHandle": null,
    });
    let cleared = bench.patched_status("volumesnapshotcontents", &nothing);
    bench.expect([DELETE.to_owned(), cleared, bench.release_line()]).await;
    let left = bench.get(CONTENTS, bench.name).await.unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/other"]));
    bench.patch(CONTENTS, json!({ "metadata": { "finalizers": null } })).await;
    bench.stop().await;
}

#[tokio::test]
async fn what_is_to_be_kept_is_kept() {
    let keep = |it: &mut Value| it["spec"]["deletionPolicy"] = json!("Retain");
    let Some(mut bench) = deleted("snapdel-keep", keep).await else { return };
    bench.start_snapshotter();
    bench.expect([bench.release_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_content_that_nobody_bound_needs_no_word() {
    let unbound = |it: &mut Value| {
        it["metadata"]["annotations"] = json!({});
        it["spec"]["source"] = json!({ "snapshotHandle": "h" });
        it["spec"]["volumeSnapshotRef"]["uid"] = json!("");
    };
    let Some(mut bench) = deleted("snapdel-unbound", unbound).await else { return };
    bench.start_snapshotter();
    bench.expect([DELETE.to_owned(), bench.release_line()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_failed_deletion_is_told_and_tried_again() {
    let Some(mut bench) = deleted("snapdel-error", |_| {}).await else { return };
    bench.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    bench.start_snapshotter();
    let failed = format!("{DELETE} -> FailedPrecondition");
    bench.expect([failed, DELETE.to_owned(), bench.release_line()]).await;
    bench.expect_events(["SnapshotDeleteError"]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_deletion_that_cannot_be_written_down_is_asked_for_again() {
    let Some(mut bench) = deleted("snapdel-unsaved", |_| {}).await else { return };
    bench.journal.fail_once(Method::PATCH, "volumesnapshotcontents/snapdel-unsaved", 500);
    bench.start_snapshotter();
    let (delete, release) = (DELETE.to_owned(), bench.release_line());
    let failed = format!("{release} -> 500");
    bench.expect([delete.clone(), failed, delete, release]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_is_being_taken_is_deleted_after_that() {
    let Some(mut bench) = Bench::new("snapdel-early").await else { return };
    bench.class(|_| {}).await;
    bench.content(|_| {}).await;
    let told = CancellationToken::new();
    bench.driver.answer(Answer::When(told.clone()));
    bench.start_snapshotter();
    bench.expect([bench.mark_line(), bench.create_line()]).await;
    let word = json!({ "metadata": { "annotations": { BEING_DELETED: "yes" } } });
    bench.patch(CONTENTS, word).await;
    bench.delete(CONTENTS).await;
    let waiting = bench.get(CONTENTS, bench.name).await.unwrap();
    assert_eq!(waiting["metadata"]["annotations"][BEING_CREATED], "yes");
    told.cancel();
    let mut count = 6;
    while bench.lines(count).await.last() != Some(&bench.release_line()) {
        count += 1;
    }
    let lines = bench.lines(count).await;
    let at = |wanted: &str| lines.iter().position(|line| line == wanted).unwrap();
    let order = [&bench.taken_line(true), &bench.unmark_line(), DELETE, &bench.release_line()];
    assert!(order.map(at).is_sorted(), "{lines:#?}");
    bench.stop().await;
}
