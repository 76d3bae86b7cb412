use http::Method;
use serde_json::{Value, json};

use super::lines::{IN_USE, SNAPSHOTS, SOURCE, TAKEN};
use crate::{
    extremes,
    journal::DEADLINE,
    snapshots::{CONTENTS, Fixture, driver::Answer},
};

#[tokio::test]
async fn a_snapshot_of_a_claim_becomes_ready() {
    let Some(mut fixture) = Fixture::new("vs-dynamic").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|_| {}).await;
    fixture.start_controller();
    let [get, protect] = fixture.claim_lines(&[IN_USE, TAKEN]);
    let content = fixture.content_line(|_| {});
    let begun = [fixture.prepare_line(), get.clone(), protect, content, fixture.bound_line()];
    fixture.expect(begun.clone()).await;
    fixture.fulfil().await;
    let [_, release] = fixture.claim_lines(&[IN_USE]);
    let lines = fixture.lines(8).await;
    assert_eq!(lines[..5], begun);
    assert_eq!(lines[5..], [fixture.shown_line(), get, release]);
    fixture.expect_events(["CreatingSnapshot", "SnapshotCreated", "SnapshotReady"]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_whose_content_is_taken_away_is_not_taken_again() {
    let Some(mut fixture) = Fixture::new("vs-stolen").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|_| {}).await;
    fixture.start_controller();
    fixture.lines(5).await;
    fixture.fulfil().await;
    fixture.lines(8).await;
    let content = format!("{CONTENTS}/{}", fixture.content_name().await);
    fixture.delete_at(&content).await;
    fixture.patch_at(&content, json!({ "metadata": { "finalizers": null } })).await;
    // A snapshot that is taken now would be of another time than the status says.
    let lines = fixture.lines(9).await;
    assert_eq!(lines[8], fixture.told_line("VolumeSnapshotContent is missing", true));
    fixture.delete(&fixture.snapshots()).await;
    let lines = fixture.lines(10).await;
    assert_eq!(lines[9], fixture.patched_metadata(SNAPSHOTS, json!({ "finalizers": null })));
    assert_eq!(fixture.get(&fixture.snapshots(), fixture.name).await, None);
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_that_could_not_be_let_go_is_let_go_later() {
    let Some(mut fixture) = Fixture::new("vs-kept").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|_| {}).await;
    fixture.start_controller();
    fixture.lines(5).await;
    fixture.journal.fail_once(Method::PUT, "persistentvolumeclaims/vs-kept", 500);
    fixture.fulfil().await;
    let [get, release] = fixture.claim_lines(&[IN_USE]);
    let lines = fixture.lines(10).await;
    assert_eq!(lines[6..], [get.clone(), format!("{release} -> 500"), get, release]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_names_secret_node_and_no_mode() {
    let Some(mut fixture) = Fixture::new("vs-options").await else { return };
    fixture
        .class(|it| {
            it["parameters"] = json!({
                "csi.storage.k8s.io/snapshotter-secret-name": "${volumesnapshot.name}-x",
                "csi.storage.k8s.io/snapshotter-secret-namespace": "${volumesnapshot.namespace}",
            });
            it["deletionPolicy"] = json!("Retain");
        })
        .await;
    let node = json!({ "metadata": { "labels": { "vs-options": "yes" } } });
    fixture.create("/api/v1/nodes", "Node", node).await;
    let here = json!([{ "key": "vs-options", "operator": "In", "values": ["yes"] }]);
    let terms = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": here }] } });
    fixture.bound_claim(|it| it["spec"]["nodeAffinity"] = terms).await;
    fixture.snapshot(|_| {}).await;
    fixture.controller.distributed = true;
    fixture.controller.keep_volume_mode = false;
    fixture.start_controller();
    let lines = fixture.lines(5).await;
    // A content that is retained does not delay the deletion.
    assert_eq!(lines[0], fixture.patched_metadata(SNAPSHOTS, json!({ "finalizers": [SOURCE] })));
    let content = fixture.content_line(|it| {
        it["metadata"]["annotations"] = json!({
            "snapshot.storage.kubernetes.io/deletion-secret-name": "vs-options-x",
            "snapshot.storage.kubernetes.io/deletion-secret-namespace": "vs-options",
        });
        it["metadata"]["labels"] =
            json!({ "snapshot.storage.kubernetes.io/managed-by": "vs-options" });
        it["spec"]["deletionPolicy"] = json!("Retain");
        it["spec"].as_object_mut().unwrap().remove("sourceVolumeMode");
    });
    assert_eq!(lines[3], content);
    fixture.stop().await;
}

#[tokio::test]
async fn errors_of_the_content_show_and_go() {
    let Some(mut fixture) = Fixture::new("vs-mirror").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|_| {}).await;
    fixture.start_controller();
    fixture.lines(5).await;
    let error = json!({ "message": "full", "time": "2026-01-01T00:00:00Z" });
    let status = json!({ "error": error, "readyToUse": false });
    let name = fixture.content_name().await;
    fixture.patch_status_of(CONTENTS, &name, status).await;
    let shown = json!({ "error": { "message": "full", "time": "*" } });
    let lines = fixture.lines(6).await;
    assert_eq!(lines[5], fixture.patched_status(SNAPSHOTS, &shown));
    fixture.patch_status_of(CONTENTS, &name, json!({ "error": null })).await;
    let lines = fixture.lines(7).await;
    assert_eq!(lines[6], fixture.patched_status(SNAPSHOTS, &json!({ "error": null })));
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_that_is_not_bound_is_waited_for() {
    let Some(mut fixture) = Fixture::new("vs-unbound").await else { return };
    fixture.class(|_| {}).await;
    fixture.controller.backoff.first = DEADLINE * 2;
    fixture.snapshot(|_| {}).await;
    fixture.start_controller();
    let missing = "Failed to create snapshot content with error snapshot controller failed to update vs-unbound on API \
                   server: cannot get claim from snapshot";
    let held = fixture.patched_metadata(SNAPSHOTS, json!({ "finalizers": [SOURCE] }));
    fixture.expect([held, fixture.told_line(missing, true)]).await;
    fixture.expect_events(["SnapshotContentCreationFailed"]).await;
    // Changes of the claim or its volume end the back-off.
    let claim = fixture.claim().await;
    let lines = fixture.lines(3).await;
    let unbound =
        "the PVC vs-unbound is not yet bound to a PV, will not attempt to take a snapshot";
    assert!(lines[2].contains(unbound), "{lines:#?}");
    fixture.bind_claim(&claim, |_| {}).await;
    let lines = fixture.lines(8).await;
    assert_eq!(lines[6], fixture.content_line(|_| {}), "{lines:#?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_of_another_claim_is_refused() {
    let Some(mut fixture) = Fixture::new("vs-broken").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|it| it["spec"]["claimRef"]["uid"] = json!("other")).await;
    fixture.snapshot(|_| {}).await;
    fixture.start_controller();
    let lines = fixture.lines(2).await;
    let message = "Failed to create snapshot content with error failed to get input parameters to create snapshot \
                   vs-broken: \"claim in dataSource not bound or invalid\"";
    assert_eq!(lines[1], fixture.told_line(message, true));
    fixture.stop().await;
}

#[tokio::test]
async fn a_content_that_cannot_be_made_is_tried_again() {
    let Some(mut fixture) = Fixture::new("vs-post").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|_| {}).await;
    fixture.journal.fail_once(Method::POST, "volumesnapshotcontents", 500);
    fixture.start_controller();
    let lines = fixture.lines(7).await;
    let content = fixture.content_line(|_| {});
    assert_eq!(lines[3], format!("{content} -> 500"));
    assert!(lines[4].contains("told to answer 500"), "{lines:#?}");
    assert_eq!(lines[5], content, "the claim was protected before: {lines:#?}");
    fixture
        .expect_events([
            "CreateSnapshotContentFailed",
            "SnapshotContentCreationFailed",
            "CreatingSnapshot",
        ])
        .await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_controller_that_dies_after_the_content_makes_no_second_one() {
    let Some(mut fixture) = Fixture::new("vs-killed").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|_| {}).await;
    // No back-off ends in this test: the controller is stopped before it retries.
    fixture.controller.backoff.first = DEADLINE * 2;
    fixture.journal.fail_once(Method::PATCH, "vs-killed/status", 500);
    fixture.start_controller();
    let lines = fixture.lines(5).await;
    assert_eq!(lines[4], format!("{} -> 500", fixture.bound_line()));
    fixture.stop_controllers().await;
    fixture.journal.clear();
    fixture.start_controller();
    let lines = fixture.lines(1).await;
    assert!(lines[0].contains("boundVolumeSnapshotContentName"), "{lines:#?}");
    fixture.fulfil().await;
    let lines = fixture.lines(2).await;
    assert!(lines[1].contains(r#""readyToUse":true"#), "{lines:#?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_is_free_only_after_its_last_snapshot() {
    let Some(mut fixture) = Fixture::new("vs-two").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.snapshot(|_| {}).await;
    fixture
        .snapshot(|it: &mut Value| {
            it["metadata"] = json!({ "name": "vs-two-more" });
        })
        .await;
    fixture.start_controller();
    let posts = |lines: &[String]| lines.iter().filter(|it| it.starts_with("POST")).count();
    let bound = |lines: &[String]| lines.iter().filter(|it| it.contains("bound")).count();
    let mut count = 6;
    while posts(&fixture.lines(count).await) < 2 || bound(&fixture.lines(count).await) < 6 {
        count += 1;
    }
    fixture.journal.clear();
    fixture.fulfil().await;
    fixture.expect([fixture.shown_line()]).await;
    let claim = fixture.get(&fixture.claims(), fixture.name).await.unwrap();
    assert_eq!(claim["metadata"]["finalizers"], json!([IN_USE, TAKEN]));
    let other = fixture.get(&fixture.snapshots(), "vs-two-more").await.unwrap();
    let other = format!("snapcontent-{}", other["metadata"]["uid"].as_str().unwrap());
    let taken = json!({ "snapshotHandle": "h", "creationTime": 1, "readyToUse": true });
    fixture.patch_status_of(CONTENTS, &other, taken).await;
    let lines = fixture.lines(4).await;
    let [get, release] = fixture.claim_lines(&[IN_USE]);
    assert_eq!(lines[2..], [get, release], "{lines:#?}");
    fixture.stop().await;
}

#[tokio::test]
async fn both_controllers_take_a_snapshot_with_few_writes() {
    let Some(mut fixture) = Fixture::new("vs-both").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    fixture.driver.answer(Answer::NotReady);
    fixture.start_snapshotter();
    fixture.start_controller();
    fixture.snapshot(|_| {}).await;
    let [get, release] = fixture.claim_lines(&[IN_USE]);
    let mut count = 13;
    while fixture.lines(count).await.last() != Some(&release) {
        count += 1;
    }
    let lines = fixture.lines(count).await;
    assert!(lines.contains(&get));
    let calls = lines.iter().filter(|line| line.starts_with("CreateSnapshot")).count();
    assert_eq!(calls, 2, "{lines:#?}");
    let of_content =
        |line: &&String| line.starts_with("PATCH volumesnapshotcontents") && !line.contains("409");
    assert_eq!(lines.iter().filter(of_content).count(), 4, "{lines:#?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_of_any_name_is_taken_of_a_claim_with_much_on_it() {
    let Some(mut fixture) = Fixture::new("vs-extreme").await else { return };
    fixture.class(|_| {}).await;
    fixture.bound_claim(|_| {}).await;
    let mut much = json!({});
    extremes::fill(&mut much);
    fixture.patch(&fixture.claims(), much).await;
    let name = extremes::longest("vs-extreme");
    fixture
        .snapshot(|it| {
            it["metadata"]["name"] = json!(name);
            extremes::fill(it);
        })
        .await;
    fixture.start_controller();
    fixture.lines(5).await;
    // The claim is written whole, with its finalizer, and the snapshot by patches.
    let claim = fixture.get(&fixture.claims(), fixture.name).await.unwrap();
    assert!(extremes::is_filled(&claim));
    assert_eq!(claim["metadata"]["finalizers"], json!([IN_USE, TAKEN]));
    let snapshot = fixture.get(&fixture.snapshots(), &name).await.unwrap();
    assert!(extremes::is_filled(&snapshot));
    let uid = snapshot["metadata"]["uid"].as_str().unwrap();
    let content = format!("snapcontent-{uid}");
    assert_eq!(snapshot["status"]["boundVolumeSnapshotContentName"], content);
    fixture.stop().await;
}
