//! A driver that answers each code there is, once, and then as it should.

use serde_json::{Value, json};

use crate::codes::{UNCERTAIN, each, error, text};
use crate::snapshots::{BEING_DELETED, Bench, CONTENTS, driver::Answer};

/// A content for each code, and what `change` makes of it.
async fn contents(bench: &Bench, change: impl Fn(&mut Value, &str)) {
    bench.class(|_| {}).await;
    for (code, name) in each(bench.name) {
        bench.driver.answer_about(&name, Answer::Error(error(code)));
        bench
            .content(|it| {
                it["metadata"]["name"] = json!(name);
                change(it, &name);
            })
            .await;
    }
}

#[tokio::test]
async fn whatever_a_snapshot_is_refused_with_is_shown_and_tried_again() {
    let Some(mut bench) = Bench::new("codes-snap").await else { return };
    contents(&bench, |it, name| it["spec"]["volumeSnapshotRef"]["uid"] = json!(name)).await;
    bench.start_snapshotter();
    let (mark, unmark) = (bench.mark_line(), bench.unmark_line());
    let create = "CreateSnapshot snapshot-codes-snap v".to_owned();
    let taken = json!({
        "creationTime": 1_000_000_000, "error": null, "readyToUse": true, "restoreSize": 5,
        "snapshotHandle": "v-snap",
    });
    let taken = bench.patched_status("volumesnapshotcontents", &taken);
    for (code, name) in each(bench.name) {
        let lost = format!("{create} -> {code:?}");
        let shown = bench.error_line(&format!(
            "Failed to create snapshot: failed to take snapshot of the volume v: {:?}",
            text(code)
        ));
        let expected = match UNCERTAIN.contains(&code) {
            // The mark stays for as long as the driver may have a snapshot that nobody knows of.
            true => vec![&mark, &lost, &shown, &create, &taken, &unmark],
            false => vec![&mark, &lost, &unmark, &shown, &mark, &create, &taken, &unmark],
        };
        let lines = bench.about(&name, expected.len()).await;
        assert_eq!(lines.iter().collect::<Vec<_>>(), expected);
        let content = bench.get(CONTENTS, &name).await.unwrap();
        assert_eq!(content["status"]["readyToUse"], true, "{code:?}");
        assert_eq!(content["status"].get("error"), None, "{code:?}");
    }
    bench.expect_events(["SnapshotCreationFailed"; 16]).await;
    bench.stop().await;
}

#[tokio::test]
async fn whatever_a_search_fails_with_is_shown_and_tried_again() {
    let Some(mut bench) = Bench::new("codes-given").await else { return };
    contents(&bench, |it, name| {
        it["spec"]["source"] = json!({ "snapshotHandle": name });
        it["spec"]["volumeSnapshotRef"]["uid"] = json!("");
    })
    .await;
    for (_, name) in each(bench.name) {
        bench.driver.has(&name);
    }
    bench.start_snapshotter();
    let list = "ListSnapshots codes-given".to_owned();
    let found = json!({
        "creationTime": 1_000_000_000, "error": null, "readyToUse": true, "restoreSize": 5,
        "snapshotHandle": "codes-given",
    });
    let found = bench.patched_status("volumesnapshotcontents", &found);
    for (code, name) in each(bench.name) {
        let shown = bench.error_line(&format!(
            "Failed to check and update snapshot content: failed to list snapshot for content codes-given: {:?}",
            text(code)
        ));
        let expected = [format!("{list} -> {code:?}"), shown, list.clone(), found.clone()];
        assert_eq!(bench.about(&name, expected.len()).await, expected);
    }
    bench.expect_events(["SnapshotContentCheckandUpdateFailed"; 16]).await;
    bench.stop().await;
}

#[tokio::test]
async fn whatever_a_deletion_fails_with_is_told_and_tried_again() {
    let Some(mut bench) = Bench::new("codes-snapdel").await else { return };
    contents(&bench, |it, _| it["metadata"]["annotations"] = json!({ BEING_DELETED: "yes" })).await;
    for (_, name) in each(bench.name) {
        let taken = json!({ "snapshotHandle": name, "readyToUse": true });
        bench.patch_status_of(CONTENTS, &name, taken).await;
        bench.delete_at(&format!("{CONTENTS}/{name}")).await;
    }
    bench.start_snapshotter();
    let delete = "DeleteSnapshot codes-snapdel".to_owned();
    for (code, name) in each(bench.name) {
        let expected = [format!("{delete} -> {code:?}"), delete.clone(), bench.release_line()];
        assert_eq!(bench.about(&name, expected.len()).await, expected);
        assert_eq!(bench.get(CONTENTS, &name).await, None, "{code:?}");
    }
    bench.expect_events(["SnapshotDeleteError"; 16]).await;
    bench.stop().await;
}
