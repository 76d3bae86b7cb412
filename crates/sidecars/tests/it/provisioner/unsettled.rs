//! The mark on claims whose CreateVolume had no final answer.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::{CreateVolumeRequest, controller_service_capability::rpc};

use super::fixture::{CLAIMS, CLASSES, Fixture, SELECTED_NODE, made, marked};
use crate::{driver::Answer, journal::DEADLINE};

const MARK: &str = "wharf.dev/unsettled-volume";

fn is_marked(claim: &Value) -> bool {
    let finalizers = claim["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|it| it == MARK))
}

fn away() -> Answer {
    Answer::Error(Status::unavailable("away"))
}

impl Fixture {
    /// Creates a claim, edited by `change`, that its provisioner marked without a final answer
    /// before it ended, and clears the journal. The driver has to run.
    async fn interrupted(&mut self, change: impl FnOnce(&mut Value)) -> String {
        let backoff = self.options.backoff;
        self.options.backoff.first = Duration::from_mins(5);
        self.driver.answer(away());
        let mut name = self.name.to_owned();
        let volume = self
            .claim(|claim| {
                change(claim);
                claim["metadata"]["name"].as_str().unwrap().clone_into(&mut name);
            })
            .await;
        self.restart();
        self.journal.line(&marked(&name)[1]).await;
        self.stop_controller().await;
        self.options.backoff = backoff;
        self.journal.clear();
        volume
    }

    /// Starts another provisioner for the running driver.
    fn restart(&mut self) {
        self.start_provisioner(&self.socket(), DEADLINE);
    }

    /// The journal of the settlement of the test's claim.
    async fn expect_settled(&self, volume: &str) {
        let ([create, _], [get, put]) = (made(volume), marked(self.name));
        self.journal.expect([create, format!("DeleteVolume {volume}"), get, put]).await;
        assert!(self.get(CLAIMS).await.is_none());
        assert_eq!(self.driver.volumes().made(), [""; 0]);
    }
}

#[tokio::test]
async fn a_final_answer_removes_the_mark() {
    let Some(mut fixture) = Fixture::new("mark-final", &[]).await else { return };
    fixture.driver.answer(away());
    fixture.driver.answer(Answer::Error(Status::internal("broken")));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let ([create, post], [get, put]) = (made(&name), marked(fixture.name));
    let (away, failed) = (format!("{create} -> Unavailable"), format!("{create} -> Internal"));
    let [get_again, put_again] = marked(fixture.name);
    fixture.journal.expect([away, get, put, failed, get_again, put_again, create, post]).await;
    assert!(!is_marked(&fixture.get(CLAIMS).await.unwrap()));
    fixture.stop().await;
}

#[tokio::test]
async fn an_answer_that_tells_nothing_of_the_volume_leaves_the_mark() {
    let Some(mut fixture) = Fixture::new("mark-kept", &[]).await else { return };
    fixture.driver.answer(away());
    fixture.driver.answer(Answer::Error(Status::already_exists("another one")));
    fixture.driver.answer(Answer::Error(Status::unauthenticated("who is it")));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let ([create, post], [get, put]) = (made(&name), marked(fixture.name));
    let failed = |code: &str| format!("{create} -> {code}");
    let [get_again, put_again] = marked(fixture.name);
    fixture
        .journal
        .expect([
            failed("Unavailable"),
            get,
            put,
            failed("AlreadyExists"),
            failed("Unauthenticated"),
            create,
            post,
            get_again,
            put_again,
        ])
        .await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_has_its_mark_before_a_long_call_ends() {
    let Some(mut fixture) = Fixture::new("mark-early", &[]).await else { return };
    fixture.options.mark_after = Duration::from_millis(10);
    let told = CancellationToken::new();
    fixture.driver.answer(Answer::When(told.clone()));
    fixture.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let ([create, post], [get, put]) = (made(&name), marked(fixture.name));
    fixture.journal.expect([create.clone(), get.clone(), put.clone()]).await;
    let claim = fixture.get(CLAIMS).await.unwrap();
    assert!(is_marked(&claim));
    let note = claim["metadata"]["annotations"][MARK].as_str().unwrap();
    let note: Value = serde_json::from_str(note).unwrap();
    assert_eq!(note["volume"], name);
    assert_eq!(note["parameters"], json!({ "tier": "fast" }));
    told.cancel();
    let [get_again, put_again] = marked(fixture.name);
    fixture.journal.expect([create, get, put, post, get_again, put_again]).await;
    let claim = fixture.get(CLAIMS).await.unwrap();
    assert!(!is_marked(&claim) && claim["metadata"]["annotations"].get(MARK).is_none());
    fixture.stop().await;
}

#[tokio::test]
async fn a_mark_that_cannot_be_written_is_written_before_the_next_call() {
    let Some(mut fixture) = Fixture::new("mark-unwritten", &[]).await else { return };
    fixture.driver.answer(away());
    fixture.journal.fail_once(Method::PUT, "mark-unwritten", 500);
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let [create, post] = made(&name);
    let [[g1, p1], [g2, p2], [g3, p3]] = [(); 3].map(|()| marked(fixture.name));
    let away = format!("{create} -> Unavailable");
    fixture.journal.expect([away, g1, format!("{p1} -> 500"), g2, p2, create, post, g3, p3]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_mark_that_cannot_be_removed_is_tried_again_without_a_call() {
    let Some(mut fixture) = Fixture::new("mark-unremoved", &[]).await else { return };
    fixture.start_driver();
    fixture.class(|_| {}).await;
    let name = fixture.interrupted(|_| {}).await;
    fixture.journal.fail_once(Method::PUT, "mark-unremoved", 500);
    fixture.restart();
    let [create, post] = made(&name);
    let [[g1, p1], [g2, p2]] = [(); 2].map(|()| marked(fixture.name));
    fixture.journal.expect([create, post, g1, format!("{p1} -> 500"), g2, p2]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_mark_on_a_claim_whose_volume_is_known_is_removed() {
    let Some(mut fixture) = Fixture::new("mark-known", &[]).await else { return };
    fixture.start_driver();
    fixture.class(|_| {}).await;
    let name = fixture.interrupted(|_| {}).await;
    // Created by another provisioner.
    fixture.released(&name, |_| {}).await;
    fixture.bind(fixture.name, &name).await;
    fixture.release_claim().await;
    fixture.restart();
    fixture.journal.expect(marked(fixture.name)).await;
    assert!(fixture.get(CLAIMS).await.is_none());
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_is_settled_once_its_class_is_back() {
    let Some(mut fixture) = Fixture::new("mark-classless", &[]).await else { return };
    fixture.start_driver();
    fixture.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    let name = fixture.interrupted(|_| {}).await;
    fixture.delete(CLASSES).await;
    fixture.release_claim().await;
    fixture.restart();
    let event =
        "Warning ProvisioningFailed The driver may still have a volume for it: storageClass";
    fixture.journal.event(event).await;
    // A different class of that name does not determine where the volume is.
    fixture.class(|it| it["parameters"] = json!({ "tier": "slow" })).await;
    let event = "Warning ProvisioningFailed The driver may still have a volume for it: \
        StorageClass \"mark-classless\" is not as it was when the volume was asked for";
    fixture.journal.event(event).await;
    fixture.delete(CLASSES).await;
    assert_eq!(fixture.journal.lines(), [""; 0]);
    fixture.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    fixture.expect_settled(&name).await;
    fixture.stop().await;
}

/// Any editor of a claim may write a note.
#[tokio::test]
async fn a_note_cannot_have_a_volume_deleted_that_is_known() {
    let Some(mut fixture) = Fixture::new("mark-forged", &[]).await else { return };
    fixture.start_driver();
    fixture.class(|_| {}).await;
    let name = fixture.interrupted(|_| {}).await;
    let forged = json!({
        "driver": fixture.options.driver, "volume": "victim", "storageClass": "victim",
        "parameters": {}, "topology": {},
    });
    let annotations = json!({ "metadata": { "annotations": { MARK: forged.to_string() } } });
    fixture.patch(CLAIMS, annotations).await;
    // A driver that ignores names returns the same volume for all.
    fixture
        .released("mark-forged-victim", |it| it["spec"]["csi"]["volumeHandle"] = json!(name))
        .await;
    fixture.set_phase("mark-forged-victim", "Bound").await;
    fixture.release_claim().await;
    fixture.restart();
    let ([create, _], [get, put]) = (made(&name), marked(fixture.name));
    fixture.journal.expect([create, get, put]).await;
    assert_eq!(fixture.driver.volumes().last_asked().name, name);
    assert_eq!(fixture.driver.volumes().made(), [name]);
    fixture.stop().await;
}

fn zone(asked: &CreateVolumeRequest) -> String {
    let requirement = asked.accessibility_requirements.as_ref().unwrap();
    let zones = requirement.requisite.iter().flat_map(|it| it.segments.values());
    zones.cloned().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_volume_is_settled_where_it_was_asked_for_before_it_is_made_elsewhere() {
    let Some(mut fixture) = Fixture::new("mark-moved", &[]).await else { return };
    fixture.start_driver();
    fixture.options.topology.strict = true;
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "a");
    fixture.node("mark-moved-1", "a").await;
    fixture.node("mark-moved-2", "b").await;
    fixture.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    let picked = |node: &str| json!({ "annotations": { SELECTED_NODE: node } });
    let name = fixture
        .interrupted(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("mark-moved-1"))
        .await;
    fixture.patch(CLAIMS, json!({ "metadata": picked("mark-moved-2") })).await;
    // The node and its segment are gone.
    fixture.delete_at("/api/v1/nodes/mark-moved-1").await;
    fixture.restart();
    let ([create, post], [get, put]) = (made(&name), marked(fixture.name));
    let delete = format!("DeleteVolume {name}");
    fixture.journal.expect([create.clone(), delete, get, put, create, post]).await;
    let asked: Vec<String> = fixture.driver.volumes().all_asked().iter().map(zone).collect();
    assert_eq!(asked, ["a", "a", "b"]);
    fixture.stop().await;
}

#[tokio::test]
async fn the_next_leader_names_the_places_of_the_first_request() {
    let Some(mut fixture) = Fixture::new("mark-places", &[]).await else { return };
    fixture.start_driver();
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "a");
    fixture.node("mark-places-1", "a").await;
    fixture.node("mark-places-2", "b").await;
    fixture.class(|_| {}).await;
    let name = fixture.interrupted(|_| {}).await;
    fixture.node("mark-places-3", "c").await;
    fixture.restart();
    let ([create, post], [get, put]) = (made(&name), marked(fixture.name));
    fixture.journal.expect([create, post, get, put]).await;
    let asked: Vec<String> = fixture.driver.volumes().all_asked().iter().map(zone).collect();
    assert_eq!(asked, ["a b", "a b"]);
    fixture.stop().await;
}

/// The source's deletion waits for the clone, so the clone must not wait for the source.
#[tokio::test]
async fn a_clone_is_settled_although_its_source_is_being_deleted() {
    let name = "mark-clone";
    let Some(mut fixture) = Fixture::new(name, &[rpc::Type::CloneVolume]).await else { return };
    let source = fixture.bound().await;
    fixture.stop_controller().await;
    let clone = fixture
        .interrupted(|claim| {
            claim["metadata"]["name"] = json!("mark-clone-2");
            claim["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": name });
        })
        .await;
    fixture.delete(CLAIMS).await;
    fixture.release_claim_at(&format!("{CLAIMS}/mark-clone-2")).await;
    fixture.restart();
    let ([create, _], [get, put]) = (made(&clone), marked("mark-clone-2"));
    let [source_get, source_put] = marked(name);
    let delete = format!("DeleteVolume {clone}");
    fixture.journal.expect([create, delete, get, put, source_get, source_put]).await;
    assert!(fixture.driver.volumes().last_asked().volume_content_source.is_some());
    assert_eq!(fixture.driver.volumes().made(), [source]);
    fixture.stop().await;
}

#[tokio::test]
async fn no_volume_is_made_for_a_claim_that_is_being_deleted() {
    let Some(mut fixture) = Fixture::new("mark-deleting", &[]).await else { return };
    fixture.class(|_| {}).await;
    // As a pod uses it.
    fixture.claim(|it| it["metadata"]["finalizers"] = json!(["example.com/held"])).await;
    fixture.delete(CLAIMS).await;
    let other = fixture.claim(|it| it["metadata"]["name"] = json!("mark-deleting-2")).await;
    fixture.start();
    fixture.journal.expect(made(&other)).await;
    let next = fixture.claim(|it| it["metadata"]["name"] = json!("mark-deleting-3")).await;
    let ([create, post], [other, other_post]) = (made(&next), made(&other));
    fixture.journal.expect([other, other_post, create, post]).await;
    fixture.stop().await;
}

/// A note names a foreign volume as the source. The claim has no source.
#[tokio::test]
async fn a_note_cannot_have_a_volume_of_others_cloned() {
    let name = "mark-stolen";
    let Some(mut fixture) = Fixture::new(name, &[rpc::Type::CloneVolume]).await else { return };
    fixture.start_driver();
    fixture.class(|_| {}).await;
    let volume = fixture.interrupted(|_| {}).await;
    let claim = fixture.get(CLAIMS).await.unwrap();
    let note = claim["metadata"]["annotations"][MARK].as_str().unwrap();
    let mut forged: Value = serde_json::from_str(note).unwrap();
    forged["source"] = json!({ "volume": "victim" });
    let annotations = json!({ "metadata": { "annotations": { MARK: forged.to_string() } } });
    fixture.patch(CLAIMS, annotations).await;
    fixture.release_claim().await;
    fixture.restart();
    let event = "Warning ProvisioningFailed The driver may still have a volume for it: the source of \
        the claim is not the one that the note on the claim names";
    fixture.journal.event(event).await;
    assert_eq!(fixture.journal.lines(), [""; 0], "the driver was asked");
    // Without the note the claim determines its source.
    fixture.patch(CLAIMS, json!({ "metadata": { "annotations": { MARK: null } } })).await;
    fixture.expect_settled(&volume).await;
    assert_eq!(fixture.driver.volumes().last_asked().volume_content_source, None);
    fixture.stop().await;
}

/// An error about another request does not tell the state of the first volume.
#[tokio::test]
async fn a_class_that_is_replaced_does_not_settle_what_was_asked_for_before() {
    let Some(mut fixture) = Fixture::new("mark-replaced", &[]).await else { return };
    fixture.driver.answer(away());
    fixture.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    let name = fixture.claim(|_| {}).await;
    let (create, held) = (made(&name)[0].clone(), CancellationToken::new());
    fixture.journal.hold(Method::PUT, "mark-replaced", held.clone());
    fixture.start();
    fixture.journal.held().await;
    fixture.delete(CLASSES).await;
    fixture.class(|it| it["parameters"] = json!({ "tier": "bogus" })).await;
    held.cancel();
    fixture.journal.line(&made(&name)[1]).await;
    let tiers: Vec<_> = fixture.driver.volumes().all_asked().into_iter().collect();
    assert!(tiers.len() >= 2, "{create} was not repeated");
    assert!(tiers.iter().all(|it| it.parameters["tier"] == "fast"), "{tiers:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_without_its_object_is_found_by_the_next_leader() {
    let Some(mut fixture) = Fixture::new("mark-unsaved", &[]).await else { return };
    let backoff = fixture.options.backoff;
    fixture.options.backoff.first = Duration::from_mins(5);
    fixture.journal.fail_once(Method::POST, "persistentvolumes", 500);
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.line(&marked(fixture.name)[1]).await;
    assert!(is_marked(&fixture.get(CLAIMS).await.unwrap()));
    fixture.stop_controller().await;
    fixture.options.backoff = backoff;
    fixture.journal.clear();
    fixture.release_claim().await;
    fixture.restart();
    fixture.expect_settled(&name).await;
    fixture.stop().await;
}

/// The API's limit for all annotations of an object is 256 KiB.
#[tokio::test]
async fn a_claim_without_room_for_a_note_is_marked() {
    let Some(mut fixture) = Fixture::new("mark-full", &[]).await else { return };
    fixture.start_driver();
    fixture.class(|_| {}).await;
    let full = "x".repeat((256 << 10) - 64);
    let backoff = fixture.options.backoff;
    fixture.options.backoff.first = Duration::from_mins(5);
    fixture.driver.answer(away());
    let name = fixture.claim(|it| it["metadata"]["annotations"]["full"] = json!(full)).await;
    fixture.restart();
    fixture.journal.line(&marked(fixture.name)[1]).await;
    let claim = fixture.get(CLAIMS).await.unwrap();
    assert!(is_marked(&claim) && claim["metadata"]["annotations"].get(MARK).is_none());
    fixture.stop_controller().await;
    fixture.options.backoff = backoff;
    fixture.journal.clear();
    fixture.release_claim().await;
    fixture.restart();
    fixture.expect_settled(&name).await;
    fixture.stop().await;
}
