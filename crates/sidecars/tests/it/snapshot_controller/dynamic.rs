use http::Method;
use serde_json::{Value, json};

use super::lines::{IN_USE, SNAPSHOTS, SOURCE, TAKEN};
use crate::extremes;
use crate::journal::DEADLINE;
use crate::snapshots::{Bench, CONTENTS, driver::Answer};

#[tokio::test]
async fn a_snapshot_of_a_claim_becomes_ready() {
    let Some(mut bench) = Bench::new("vs-dynamic").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|_| {}).await;
    bench.start_controller();
    let [get, protect] = bench.claim_lines(&[IN_USE, TAKEN]);
    let content = bench.content_line(|_| {});
    let begun = [bench.prepare_line(), get.clone(), protect, content, bench.bound_line()];
    bench.expect(begun.clone()).await;
    bench.fulfil().await;
    let [_, release] = bench.claim_lines(&[IN_USE]);
    let lines = bench.lines(8).await;
    assert_eq!(lines[..5], begun);
    assert_eq!(lines[5..], [bench.shown_line(), get, release]);
    bench.expect_events(["CreatingSnapshot", "SnapshotCreated", "SnapshotReady"]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshot_whose_content_is_taken_away_is_not_taken_again() {
    let Some(mut bench) = Bench::new("vs-stolen").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|_| {}).await;
    bench.start_controller();
    bench.lines(5).await;
    bench.fulfil().await;
    bench.lines(8).await;
    let content = format!("{CONTENTS}/{}", bench.content_name().await);
    bench.delete_at(&content).await;
    bench.patch_at(&content, json!({ "metadata": { "finalizers": null } })).await;
    // What would be taken now is of another day than the snapshot says.
    let lines = bench.lines(9).await;
    assert_eq!(lines[8], bench.told_line("VolumeSnapshotContent is missing", true));
    bench.delete(&bench.snapshots()).await;
    let lines = bench.lines(10).await;
    assert_eq!(lines[9], bench.patched_metadata(SNAPSHOTS, json!({ "finalizers": null })));
    assert_eq!(bench.get(&bench.snapshots(), bench.name).await, None);
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_that_could_not_be_let_go_is_let_go_later() {
    let Some(mut bench) = Bench::new("vs-kept").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|_| {}).await;
    bench.start_controller();
    bench.lines(5).await;
    bench.journal.fail_once(Method::PUT, "persistentvolumeclaims/vs-kept", 500);
    bench.fulfil().await;
    let [get, release] = bench.claim_lines(&[IN_USE]);
    let lines = bench.lines(10).await;
    assert_eq!(lines[6..], [get.clone(), format!("{release} -> 500"), get, release]);
    bench.stop().await;
}

#[tokio::test]
async fn a_content_names_secret_node_and_no_mode() {
    let Some(mut bench) = Bench::new("vs-options").await else { return };
    bench
        .class(|it| {
            it["parameters"] = json!({
                "csi.storage.k8s.io/snapshotter-secret-name": "${volumesnapshot.name}-x",
                "csi.storage.k8s.io/snapshotter-secret-namespace": "${volumesnapshot.namespace}",
            });
            it["deletionPolicy"] = json!("Retain");
        })
        .await;
    let node = json!({ "metadata": { "labels": { "vs-options": "yes" } } });
    bench.create("/api/v1/nodes", "Node", node).await;
    let here = json!([{ "key": "vs-options", "operator": "In", "values": ["yes"] }]);
    let terms = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": here }] } });
    bench.bound_claim(|it| it["spec"]["nodeAffinity"] = terms).await;
    bench.snapshot(|_| {}).await;
    bench.controller.distributed = true;
    bench.controller.keep_volume_mode = false;
    bench.start_controller();
    let lines = bench.lines(5).await;
    // What is to be kept holds nothing.
    assert_eq!(lines[0], bench.patched_metadata(SNAPSHOTS, json!({ "finalizers": [SOURCE] })));
    let content = bench.content_line(|it| {
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
    bench.stop().await;
}

#[tokio::test]
async fn errors_of_the_content_show_and_go() {
    let Some(mut bench) = Bench::new("vs-mirror").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|_| {}).await;
    bench.start_controller();
    bench.lines(5).await;
    let error = json!({ "message": "full", "time": "2026-01-01T00:00:00Z" });
    let status = json!({ "error": error, "readyToUse": false });
    let name = bench.content_name().await;
    bench.patch_status_of(CONTENTS, &name, status).await;
    let shown = json!({ "error": { "message": "full", "time": "*" } });
    let lines = bench.lines(6).await;
    assert_eq!(lines[5], bench.patched_status(SNAPSHOTS, &shown));
    bench.patch_status_of(CONTENTS, &name, json!({ "error": null })).await;
    let lines = bench.lines(7).await;
    assert_eq!(lines[6], bench.patched_status(SNAPSHOTS, &json!({ "error": null })));
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_that_is_not_bound_is_waited_for() {
    let Some(mut bench) = Bench::new("vs-unbound").await else { return };
    bench.class(|_| {}).await;
    bench.controller.backoff.first = DEADLINE * 2;
    bench.snapshot(|_| {}).await;
    bench.start_controller();
    let missing = "Failed to create snapshot content with error snapshot controller failed to update vs-unbound on API \
                   server: cannot get claim from snapshot";
    let held = bench.patched_metadata(SNAPSHOTS, json!({ "finalizers": [SOURCE] }));
    bench.expect([held, bench.told_line(missing, true)]).await;
    bench.expect_events(["SnapshotContentCreationFailed"]).await;
    // Neither the claim nor its volume is waited for by a back-off.
    let claim = bench.claim().await;
    let lines = bench.lines(3).await;
    let unbound =
        "the PVC vs-unbound is not yet bound to a PV, will not attempt to take a snapshot";
    assert!(lines[2].contains(unbound), "{lines:#?}");
    bench.bind_claim(&claim, |_| {}).await;
    let lines = bench.lines(8).await;
    assert_eq!(lines[6], bench.content_line(|_| {}), "{lines:#?}");
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_of_another_claim_is_refused() {
    let Some(mut bench) = Bench::new("vs-broken").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|it| it["spec"]["claimRef"]["uid"] = json!("other")).await;
    bench.snapshot(|_| {}).await;
    bench.start_controller();
    let lines = bench.lines(2).await;
    let message = "Failed to create snapshot content with error failed to get input parameters to create snapshot \
                   vs-broken: \"claim in dataSource not bound or invalid\"";
    assert_eq!(lines[1], bench.told_line(message, true));
    bench.stop().await;
}

#[tokio::test]
async fn a_content_that_cannot_be_made_is_tried_again() {
    let Some(mut bench) = Bench::new("vs-post").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|_| {}).await;
    bench.journal.fail_once(Method::POST, "volumesnapshotcontents", 500);
    bench.start_controller();
    let lines = bench.lines(7).await;
    let content = bench.content_line(|_| {});
    assert_eq!(lines[3], format!("{content} -> 500"));
    assert!(lines[4].contains("told to answer 500"), "{lines:#?}");
    assert_eq!(lines[5], content, "the claim was protected before: {lines:#?}");
    bench
        .expect_events([
            "CreateSnapshotContentFailed",
            "SnapshotContentCreationFailed",
            "CreatingSnapshot",
        ])
        .await;
    bench.stop().await;
}

#[tokio::test]
async fn a_controller_that_dies_after_the_content_makes_no_second_one() {
    let Some(mut bench) = Bench::new("vs-killed").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|_| {}).await;
    // Not a back-off to wait for: the controller ends before it tries again.
    bench.controller.backoff.first = DEADLINE * 2;
    bench.journal.fail_once(Method::PATCH, "vs-killed/status", 500);
    bench.start_controller();
    let lines = bench.lines(5).await;
    assert_eq!(lines[4], format!("{} -> 500", bench.bound_line()));
    bench.stop_controllers().await;
    bench.journal.clear();
    bench.start_controller();
    let lines = bench.lines(1).await;
    assert!(lines[0].contains("boundVolumeSnapshotContentName"), "{lines:#?}");
    bench.fulfil().await;
    let lines = bench.lines(2).await;
    assert!(lines[1].contains(r#""readyToUse":true"#), "{lines:#?}");
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_is_free_only_after_its_last_snapshot() {
    let Some(mut bench) = Bench::new("vs-two").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.snapshot(|_| {}).await;
    bench
        .snapshot(|it: &mut Value| {
            it["metadata"] = json!({ "name": "vs-two-more" });
        })
        .await;
    bench.start_controller();
    let posts = |lines: &[String]| lines.iter().filter(|it| it.starts_with("POST")).count();
    let bound = |lines: &[String]| lines.iter().filter(|it| it.contains("bound")).count();
    let mut count = 6;
    while posts(&bench.lines(count).await) < 2 || bound(&bench.lines(count).await) < 6 {
        count += 1;
    }
    bench.journal.clear();
    bench.fulfil().await;
    bench.expect([bench.shown_line()]).await;
    let claim = bench.get(&bench.claims(), bench.name).await.unwrap();
    assert_eq!(claim["metadata"]["finalizers"], json!([IN_USE, TAKEN]));
    let other = bench.get(&bench.snapshots(), "vs-two-more").await.unwrap();
    let other = format!("snapcontent-{}", other["metadata"]["uid"].as_str().unwrap());
    let taken = json!({ "snapshotHandle": "h", "creationTime": 1, "readyToUse": true });
    bench.patch_status_of(CONTENTS, &other, taken).await;
    let lines = bench.lines(4).await;
    let [get, release] = bench.claim_lines(&[IN_USE]);
    assert_eq!(lines[2..], [get, release], "{lines:#?}");
    bench.stop().await;
}

#[tokio::test]
async fn both_controllers_take_a_snapshot_with_few_writes() {
    let Some(mut bench) = Bench::new("vs-both").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    bench.driver.answer(Answer::NotReady);
    bench.start_snapshotter();
    bench.start_controller();
    bench.snapshot(|_| {}).await;
    let [get, release] = bench.claim_lines(&[IN_USE]);
    let mut count = 13;
    while bench.lines(count).await.last() != Some(&release) {
        count += 1;
    }
    let lines = bench.lines(count).await;
    assert!(lines.contains(&get));
    let calls = lines.iter().filter(|line| line.starts_with("CreateSnapshot")).count();
    assert_eq!(calls, 2, "{lines:#?}");
    let of_content =
        |line: &&String| line.starts_with("PATCH volumesnapshotcontents") && !line.contains("409");
    assert_eq!(lines.iter().filter(of_content).count(), 4, "{lines:#?}");
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshot_of_any_name_is_taken_of_a_claim_with_much_on_it() {
    let Some(mut bench) = Bench::new("vs-extreme").await else { return };
    bench.class(|_| {}).await;
    bench.bound_claim(|_| {}).await;
    let mut much = json!({});
    extremes::fill(&mut much);
    bench.patch(&bench.claims(), much).await;
    let name = extremes::longest("vs-extreme");
    bench
        .snapshot(|it| {
            it["metadata"]["name"] = json!(name);
            extremes::fill(it);
        })
        .await;
    bench.start_controller();
    bench.lines(5).await;
    // The claim is written whole, with its finalizer, and the snapshot by patches.
    let claim = bench.get(&bench.claims(), bench.name).await.unwrap();
    assert!(extremes::is_filled(&claim));
    assert_eq!(claim["metadata"]["finalizers"], json!([IN_USE, TAKEN]));
    let snapshot = bench.get(&bench.snapshots(), &name).await.unwrap();
    assert!(extremes::is_filled(&snapshot));
    let uid = snapshot["metadata"]["uid"].as_str().unwrap();
    let content = format!("snapcontent-{uid}");
    assert_eq!(snapshot["status"]["boundVolumeSnapshotContentName"], content);
    bench.stop().await;
}
