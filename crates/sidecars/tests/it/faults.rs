use http::Method;
use serde_json::json;
use wharf_cluster::{ApiFailure, Meta, Objects, Part, Patch, PersistentVolume, Store};

use crate::{
    fixture::{ATTACHMENTS, Fixture, VOLUMES},
    role,
};

async fn faulty(name: &'static str, part: &'static str, code: u16) -> Option<Fixture> {
    let mut fixture = Fixture::new(name, &[]).await?;
    fixture.journal.fail_once(Method::PATCH, part, code);
    fixture.node().await;
    fixture.volume(|_| {}).await;
    fixture.attachment(|_| {}).await;
    fixture.start();
    Some(fixture)
}

#[tokio::test]
async fn a_conflict_is_settled_by_reading_again() {
    let part = "persistentvolumes/fault-conflict";
    let Some(fixture) = faulty("fault-conflict", part, 409).await else { return };
    let [protect, prepare, publish, attached] = fixture.attach_lines();
    let lost = format!("{protect} -> 409");
    fixture
        .journal
        .expect([lost, format!("GET {part}"), protect, prepare, publish, attached])
        .await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_patch_of_a_state_that_is_past_is_planned_anew() {
    let Some(fixture) = Fixture::new("fault-stale", &[]).await else { return };
    fixture.volume(|it| it["metadata"]["finalizers"] = json!(["example.com/a"])).await;
    let store = Store::<PersistentVolume>::new(|_| true);
    let volumes = Objects::new(fixture.journal.client(&fixture.admin, Some(role::ATTACHER)), store);
    let meta = Meta { name: fixture.name.to_owned(), ..Meta::default() };
    let stale = volumes.get(&meta).await.unwrap();
    let finalizers = json!(["example.com/b", "example.com/c"]);
    fixture.patch(VOLUMES, json!({ "metadata": { "finalizers": finalizers } })).await;
    fixture.journal.clear();

    let plan = |it: &PersistentVolume| Some(Patch::add_finalizer(&it.metadata, "example.com/d"));
    let edited = volumes.edit(&stale, Part::Main, plan).await.unwrap();
    let expected = ["example.com/b", "example.com/c", "example.com/d"];
    assert_eq!(*edited.metadata.finalizers, expected);
    let lines = fixture.journal.lines();
    assert!(lines[0].ends_with("-> 422"), "{lines:?}");
    assert_eq!(lines[1], "GET persistentvolumes/fault-stale");
    assert_eq!(lines.len(), 3, "{lines:?}");

    let plan =
        |it: &PersistentVolume| Some(Patch::metadata(&it.metadata, json!({ "finalizers": null })));
    let conflict = volumes.patch(&stale.metadata, Part::Main, &plan(&stale).unwrap()).await;
    assert!(matches!(conflict, Err(ApiFailure::Conflict { .. })), "{conflict:?}");
    let emptied = volumes.edit(&stale, Part::Main, plan).await.unwrap();
    assert!(emptied.metadata.finalizers.is_empty());
}

#[tokio::test]
async fn a_document_is_written_back_whole() {
    let Some(fixture) = Fixture::new("fault-update", &[]).await else { return };
    fixture.volume(|it| it["metadata"]["annotations"] = json!({ "example.com/a": "b" })).await;
    let client = fixture.journal.client(&fixture.admin, None);
    let volumes = Objects::new(client, Store::<PersistentVolume>::new(|_| true));
    fixture.journal.fail_once(Method::PUT, "persistentvolumes/fault-update", 409);
    let meta = Meta { name: fixture.name.to_owned(), ..Meta::default() };
    let change = |it: &mut serde_json::Value| it["spec"]["mountOptions"] = json!(["noatime"]);
    let written = volumes.update(&meta, change).await.unwrap();
    assert_eq!(*written.spec.mount_options, ["noatime"]);
    let verbs: Vec<String> =
        fixture.journal.lines().iter().map(|line| line.chars().take(3).collect()).collect();
    assert_eq!(verbs, ["GET", "PUT", "GET", "PUT"]);
    volumes.update(&meta, change).await.unwrap();
    assert_eq!(fixture.journal.lines().len(), 5, "nothing differs, nothing is written");
    let volume = fixture.get(VOLUMES).await.unwrap();
    assert_eq!(volume["metadata"]["annotations"]["example.com/a"], "b");
}

#[tokio::test]
async fn an_attachment_that_cannot_be_marked_is_not_attached_yet() {
    let part = "volumeattachments/fault-mark";
    let Some(fixture) = faulty("fault-mark", part, 500).await else { return };
    let [protect, prepare, publish, attached] = fixture.attach_lines();
    let message =
        "could not save VolumeAttachment: VolumeAttachment fault-mark: told to answer 500";
    let (failed, error) = (format!("{prepare} -> 500"), fixture.attach_error_line(message, None));
    fixture.journal.expect([protect, failed, error, prepare, publish, attached]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_success_that_cannot_be_written_down_is_asked_for_again() {
    let part = "fault-status/status";
    let Some(fixture) = faulty("fault-status", part, 500).await else { return };
    let [protect, prepare, publish, attached] = fixture.attach_lines();
    let failed = format!("{attached} -> 500");
    fixture.journal.expect([protect, prepare, publish.clone(), failed, publish, attached]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_detach_that_cannot_be_written_down_is_asked_for_again() {
    let Some(mut fixture) = Fixture::new("fault-release", &[]).await else { return };
    fixture.attached().await;
    fixture.journal.fail_once(Method::PATCH, "volumeattachments/fault-release", 500);
    fixture.delete(ATTACHMENTS).await;
    let message = "could not mark as detached: VolumeAttachment fault-release: told to answer 500";
    let (unpublish, release) = (fixture.unpublish_line(), fixture.release_line());
    let (failed, error) = (format!("{release} -> 500"), fixture.detach_error_line(message));
    fixture.journal.expect([unpublish.clone(), failed, error, unpublish, release]).await;
    fixture.stop().await;
}
