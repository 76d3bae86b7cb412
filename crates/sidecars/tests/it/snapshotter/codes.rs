//! A driver that returns each gRPC code once and then succeeds.

use serde_json::{Value, json};

use crate::{
    codes::{UNCERTAIN, each, error, text},
    snapshots::{BEING_DELETED, CONTENTS, Fixture, driver::Answer},
};

/// Creates a content for each code, edited by `change`.
async fn contents(fixture: &Fixture, change: impl Fn(&mut Value, &str)) {
    fixture.class(|_| {}).await;
    for (code, name) in each(fixture.name) {
        fixture.driver.answer_about(&name, Answer::Error(error(code)));
        fixture
            .content(|it| {
                it["metadata"]["name"] = json!(name);
                change(it, &name);
            })
            .await;
    }
}

#[tokio::test]
async fn whatever_a_snapshot_is_refused_with_is_shown_and_tried_again() {
    let Some(mut fixture) = Fixture::new("codes-snap").await else { return };
    contents(&fixture, |it, name| it["spec"]["volumeSnapshotRef"]["uid"] = json!(name)).await;
    fixture.start_snapshotter();
    let (mark, unmark) = (fixture.mark_line(), fixture.unmark_line());
    let create = "CreateSnapshot snapshot-codes-snap v".to_owned();
    let taken = json!({
        "creationTime": 1_000_000_000, "error": null, "readyToUse": true, "restoreSize": 5,
        "snapshotHandle": "v-snap",
    });
    let taken = fixture.patched_status("volumesnapshotcontents", &taken);
    for (code, name) in each(fixture.name) {
        let lost = format!("{create} -> {code:?}");
        let shown = fixture.error_line(&format!(
            "Failed to create snapshot: failed to take snapshot of the volume v: {:?}",
            text(code)
        ));
        let expected = match UNCERTAIN.contains(&code) {
            // The mark stays while the driver may have an unrecorded snapshot.
            true => vec![&mark, &lost, &shown, &create, &taken, &unmark],
            false => vec![&mark, &lost, &unmark, &shown, &mark, &create, &taken, &unmark],
        };
        let lines = fixture.about(&name, expected.len()).await;
        assert_eq!(lines.iter().collect::<Vec<_>>(), expected);
        let content = fixture.get(CONTENTS, &name).await.unwrap();
        assert_eq!(content["status"]["readyToUse"], true, "{code:?}");
        assert_eq!(content["status"].get("error"), None, "{code:?}");
    }
    fixture.expect_events(["SnapshotCreationFailed"; 16]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn whatever_a_search_fails_with_is_shown_and_tried_again() {
    let Some(mut fixture) = Fixture::new("codes-given").await else { return };
    contents(&fixture, |it, name| {
        it["spec"]["source"] = json!({ "snapshotHandle": name });
        it["spec"]["volumeSnapshotRef"]["uid"] = json!("");
    })
    .await;
    for (_, name) in each(fixture.name) {
        fixture.driver.has(&name);
    }
    fixture.start_snapshotter();
    let list = "ListSnapshots codes-given".to_owned();
    let found = json!({
        "creationTime": 1_000_000_000, "error": null, "readyToUse": true, "restoreSize": 5,
        "snapshotHandle": "codes-given",
    });
    let found = fixture.patched_status("volumesnapshotcontents", &found);
    for (code, name) in each(fixture.name) {
        let shown = fixture.error_line(&format!(
            "Failed to check and update snapshot content: failed to list snapshot for content codes-given: {:?}",
            text(code)
        ));
        let expected = [format!("{list} -> {code:?}"), shown, list.clone(), found.clone()];
        assert_eq!(fixture.about(&name, expected.len()).await, expected);
    }
    fixture.expect_events(["SnapshotContentCheckandUpdateFailed"; 16]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn whatever_a_deletion_fails_with_is_told_and_tried_again() {
    let Some(mut fixture) = Fixture::new("codes-snapdel").await else { return };
    contents(&fixture, |it, _| it["metadata"]["annotations"] = json!({ BEING_DELETED: "yes" }))
        .await;
    for (_, name) in each(fixture.name) {
        let taken = json!({ "snapshotHandle": name, "readyToUse": true });
        fixture.patch_status_of(CONTENTS, &name, taken).await;
        fixture.delete_at(&format!("{CONTENTS}/{name}")).await;
    }
    fixture.start_snapshotter();
    let delete = "DeleteSnapshot codes-snapdel".to_owned();
    for (code, name) in each(fixture.name) {
        let expected = [format!("{delete} -> {code:?}"), delete.clone(), fixture.release_line()];
        assert_eq!(fixture.about(&name, expected.len()).await, expected);
        assert_eq!(fixture.get(CONTENTS, &name).await, None, "{code:?}");
    }
    fixture.expect_events(["SnapshotDeleteError"; 16]).await;
    fixture.stop().await;
}
