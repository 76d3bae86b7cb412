//! The mark on claims whose CreateVolume had no final answer.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::CreateVolumeRequest;
use wharf_proto::csi::controller_service_capability::rpc;

use super::bench::{Bench, CLAIMS, CLASSES, SELECTED_NODE, made, marked};
use crate::driver::Answer;
use crate::journal::DEADLINE;

const MARK: &str = "wharf.dev/unsettled-volume";

fn is_marked(claim: &Value) -> bool {
    let finalizers = claim["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|finalizers| finalizers.iter().any(|it| it == MARK))
}

fn away() -> Answer {
    Answer::Error(Status::unavailable("away"))
}

impl Bench {
    /// A claim, and what `change` makes of it, that its provisioner got no final answer for and marked before it ended. The
    /// journal is empty then. The driver has to run.
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

    /// Another provisioner for the driver that runs.
    fn restart(&mut self) {
        self.start_provisioner(&self.socket(), DEADLINE);
    }

    /// The settlement of the volume of the claim that has the test's name.
    async fn expect_settled(&self, volume: &str) {
        let ([create, _], [get, put]) = (made(volume), marked(self.name));
        self.journal.expect([create, format!("DeleteVolume {volume}"), get, put]).await;
        assert!(self.get(CLAIMS).await.is_none());
        assert_eq!(self.driver.volumes().made(), [""; 0]);
    }
}

#[tokio::test]
async fn a_final_answer_removes_the_mark() {
    let Some(mut bench) = Bench::new("mark-final", &[]).await else { return };
    bench.driver.answer(away());
    bench.driver.answer(Answer::Error(Status::internal("broken")));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let ([create, post], [get, put]) = (made(&name), marked(bench.name));
    let (away, failed) = (format!("{create} -> Unavailable"), format!("{create} -> Internal"));
    let [get_again, put_again] = marked(bench.name);
    bench.journal.expect([away, get, put, failed, get_again, put_again, create, post]).await;
    assert!(!is_marked(&bench.get(CLAIMS).await.unwrap()));
    bench.stop().await;
}

#[tokio::test]
async fn an_answer_that_tells_nothing_of_the_volume_leaves_the_mark() {
    let Some(mut bench) = Bench::new("mark-kept", &[]).await else { return };
    bench.driver.answer(away());
    bench.driver.answer(Answer::Error(Status::already_exists("another one")));
    bench.driver.answer(Answer::Error(Status::unauthenticated("who is it")));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let ([create, post], [get, put]) = (made(&name), marked(bench.name));
    let failed = |code: &str| format!("{create} -> {code}");
    let [get_again, put_again] = marked(bench.name);
    bench
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
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_has_its_mark_before_a_long_call_ends() {
    let Some(mut bench) = Bench::new("mark-early", &[]).await else { return };
    bench.options.mark_after = Duration::from_millis(10);
    let told = CancellationToken::new();
    bench.driver.answer(Answer::When(told.clone()));
    bench.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let ([create, post], [get, put]) = (made(&name), marked(bench.name));
    bench.journal.expect([create.clone(), get.clone(), put.clone()]).await;
    let claim = bench.get(CLAIMS).await.unwrap();
    assert!(is_marked(&claim));
    let note = claim["metadata"]["annotations"][MARK].as_str().unwrap();
    let note: Value = serde_json::from_str(note).unwrap();
    assert_eq!(note["volume"], name);
    assert_eq!(note["parameters"], json!({ "tier": "fast" }));
    told.cancel();
    let [get_again, put_again] = marked(bench.name);
    bench.journal.expect([create, get, put, post, get_again, put_again]).await;
    let claim = bench.get(CLAIMS).await.unwrap();
    assert!(!is_marked(&claim) && claim["metadata"]["annotations"].get(MARK).is_none());
    bench.stop().await;
}

#[tokio::test]
async fn a_mark_that_cannot_be_written_is_written_before_the_next_call() {
    let Some(mut bench) = Bench::new("mark-unwritten", &[]).await else { return };
    bench.driver.answer(away());
    bench.journal.fail_once(Method::PUT, "mark-unwritten", 500);
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let [create, post] = made(&name);
    let [[g1, p1], [g2, p2], [g3, p3]] = [(); 3].map(|()| marked(bench.name));
    let away = format!("{create} -> Unavailable");
    bench.journal.expect([away, g1, format!("{p1} -> 500"), g2, p2, create, post, g3, p3]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_mark_that_cannot_be_removed_is_tried_again_without_a_call() {
    let Some(mut bench) = Bench::new("mark-unremoved", &[]).await else { return };
    bench.start_driver();
    bench.class(|_| {}).await;
    let name = bench.interrupted(|_| {}).await;
    bench.journal.fail_once(Method::PUT, "mark-unremoved", 500);
    bench.restart();
    let [create, post] = made(&name);
    let [[g1, p1], [g2, p2]] = [(); 2].map(|()| marked(bench.name));
    bench.journal.expect([create, post, g1, format!("{p1} -> 500"), g2, p2]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_mark_on_a_claim_whose_volume_is_known_is_removed() {
    let Some(mut bench) = Bench::new("mark-known", &[]).await else { return };
    bench.start_driver();
    bench.class(|_| {}).await;
    let name = bench.interrupted(|_| {}).await;
    // By another provisioner.
    bench.released(&name, |_| {}).await;
    bench.bind(bench.name, &name).await;
    bench.release_claim().await;
    bench.restart();
    bench.journal.expect(marked(bench.name)).await;
    assert!(bench.get(CLAIMS).await.is_none());
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_is_settled_once_its_class_is_back() {
    let Some(mut bench) = Bench::new("mark-classless", &[]).await else { return };
    bench.start_driver();
    bench.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    let name = bench.interrupted(|_| {}).await;
    bench.delete(CLASSES).await;
    bench.release_claim().await;
    bench.restart();
    let event =
        "Warning ProvisioningFailed The driver may still have a volume for it: storageClass";
    bench.journal.event(event).await;
    // Another class of that name does not say where the volume is.
    bench.class(|it| it["parameters"] = json!({ "tier": "slow" })).await;
    let event = "Warning ProvisioningFailed The driver may still have a volume for it: \
        StorageClass \"mark-classless\" is not as it was when the volume was asked for";
    bench.journal.event(event).await;
    bench.delete(CLASSES).await;
    assert_eq!(bench.journal.lines(), [""; 0]);
    bench.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    bench.expect_settled(&name).await;
    bench.stop().await;
}

/// Whoever may edit a claim may write a note.
#[tokio::test]
async fn a_note_cannot_have_a_volume_deleted_that_is_known() {
    let Some(mut bench) = Bench::new("mark-forged", &[]).await else { return };
    bench.start_driver();
    bench.class(|_| {}).await;
    let name = bench.interrupted(|_| {}).await;
    let forged = json!({
        "driver": bench.options.driver, "volume": "victim", "storageClass": "victim",
        "parameters": {}, "topology": {},
    });
    let annotations = json!({ "metadata": { "annotations": { MARK: forged.to_string() } } });
    bench.patch(CLAIMS, annotations).await;
    // A driver that takes no account of names gives the same volume to all.
    bench
        .released("mark-forged-victim", |it| it["spec"]["csi"]["volumeHandle"] = json!(name))
        .await;
    bench.set_phase("mark-forged-victim", "Bound").await;
    bench.release_claim().await;
    bench.restart();
    let ([create, _], [get, put]) = (made(&name), marked(bench.name));
    bench.journal.expect([create, get, put]).await;
    assert_eq!(bench.driver.volumes().last_asked().name, name);
    assert_eq!(bench.driver.volumes().made(), [name]);
    bench.stop().await;
}

fn zone(asked: &CreateVolumeRequest) -> String {
    let requirement = asked.accessibility_requirements.as_ref().unwrap();
    let zones = requirement.requisite.iter().flat_map(|it| it.segments.values());
    zones.cloned().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_volume_is_settled_where_it_was_asked_for_before_it_is_made_elsewhere() {
    let Some(mut bench) = Bench::new("mark-moved", &[]).await else { return };
    bench.start_driver();
    bench.options.topology.strict = true;
    bench.driver.volumes().stand_at(&bench.zone_key(), "a");
    bench.node("mark-moved-1", "a").await;
    bench.node("mark-moved-2", "b").await;
    bench.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    let picked = |node: &str| json!({ "annotations": { SELECTED_NODE: node } });
    let name = bench
        .interrupted(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("mark-moved-1"))
        .await;
    bench.patch(CLAIMS, json!({ "metadata": picked("mark-moved-2") })).await;
    // The node and its place are gone.
    bench.delete_at("/api/v1/nodes/mark-moved-1").await;
    bench.restart();
    let ([create, post], [get, put]) = (made(&name), marked(bench.name));
    let delete = format!("DeleteVolume {name}");
    bench.journal.expect([create.clone(), delete, get, put, create, post]).await;
    let asked: Vec<String> = bench.driver.volumes().all_asked().iter().map(zone).collect();
    assert_eq!(asked, ["a", "a", "b"]);
    bench.stop().await;
}

#[tokio::test]
async fn the_next_leader_names_the_places_of_the_first_request() {
    let Some(mut bench) = Bench::new("mark-places", &[]).await else { return };
    bench.start_driver();
    bench.driver.volumes().stand_at(&bench.zone_key(), "a");
    bench.node("mark-places-1", "a").await;
    bench.node("mark-places-2", "b").await;
    bench.class(|_| {}).await;
    let name = bench.interrupted(|_| {}).await;
    bench.node("mark-places-3", "c").await;
    bench.restart();
    let ([create, post], [get, put]) = (made(&name), marked(bench.name));
    bench.journal.expect([create, post, get, put]).await;
    let asked: Vec<String> = bench.driver.volumes().all_asked().iter().map(zone).collect();
    assert_eq!(asked, ["a b", "a b"]);
    bench.stop().await;
}

/// The source waits for the clone, and so the clone must not wait for the source.
#[tokio::test]
async fn a_clone_is_settled_although_its_source_is_being_deleted() {
    let name = "mark-clone";
    let Some(mut bench) = Bench::new(name, &[rpc::Type::CloneVolume]).await else { return };
    let source = bench.bound().await;
    bench.stop_controller().await;
    let clone = bench
        .interrupted(|claim| {
            claim["metadata"]["name"] = json!("mark-clone-2");
            claim["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": name });
        })
        .await;
    bench.delete(CLAIMS).await;
    bench.release_claim_at(&format!("{CLAIMS}/mark-clone-2")).await;
    bench.restart();
    let ([create, _], [get, put]) = (made(&clone), marked("mark-clone-2"));
    let [source_get, source_put] = marked(name);
    let delete = format!("DeleteVolume {clone}");
    bench.journal.expect([create, delete, get, put, source_get, source_put]).await;
    assert!(bench.driver.volumes().last_asked().volume_content_source.is_some());
    assert_eq!(bench.driver.volumes().made(), [source]);
    bench.stop().await;
}

#[tokio::test]
async fn no_volume_is_made_for_a_claim_that_is_being_deleted() {
    let Some(mut bench) = Bench::new("mark-deleting", &[]).await else { return };
    bench.class(|_| {}).await;
    // As a pod does.
    bench.claim(|it| it["metadata"]["finalizers"] = json!(["example.com/held"])).await;
    bench.delete(CLAIMS).await;
    let other = bench.claim(|it| it["metadata"]["name"] = json!("mark-deleting-2")).await;
    bench.start();
    bench.journal.expect(made(&other)).await;
    let next = bench.claim(|it| it["metadata"]["name"] = json!("mark-deleting-3")).await;
    let ([create, post], [other, other_post]) = (made(&next), made(&other));
    bench.journal.expect([other, other_post, create, post]).await;
    bench.stop().await;
}

/// A note names a volume of somebody else as the source. The claim itself has none.
#[tokio::test]
async fn a_note_cannot_have_a_volume_of_others_cloned() {
    let name = "mark-stolen";
    let Some(mut bench) = Bench::new(name, &[rpc::Type::CloneVolume]).await else { return };
    bench.start_driver();
    bench.class(|_| {}).await;
    let volume = bench.interrupted(|_| {}).await;
    let claim = bench.get(CLAIMS).await.unwrap();
    let note = claim["metadata"]["annotations"][MARK].as_str().unwrap();
    let mut forged: Value = serde_json::from_str(note).unwrap();
    forged["source"] = json!({ "volume": "victim" });
    let annotations = json!({ "metadata": { "annotations": { MARK: forged.to_string() } } });
    bench.patch(CLAIMS, annotations).await;
    bench.release_claim().await;
    bench.restart();
    let event = "Warning ProvisioningFailed The driver may still have a volume for it: the source of \
        the claim is not the one that the note on the claim names";
    bench.journal.event(event).await;
    assert_eq!(bench.journal.lines(), [""; 0], "the driver was asked");
    // Without the note the claim says what it is made of.
    bench.patch(CLAIMS, json!({ "metadata": { "annotations": { MARK: null } } })).await;
    bench.expect_settled(&volume).await;
    assert_eq!(bench.driver.volumes().last_asked().volume_content_source, None);
    bench.stop().await;
}

/// An error about another request does not tell how the volume stands that was asked for first.
#[tokio::test]
async fn a_class_that_is_replaced_does_not_settle_what_was_asked_for_before() {
    let Some(mut bench) = Bench::new("mark-replaced", &[]).await else { return };
    bench.driver.answer(away());
    bench.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    let name = bench.claim(|_| {}).await;
    let (create, held) = (made(&name)[0].clone(), CancellationToken::new());
    bench.journal.hold(Method::PUT, "mark-replaced", held.clone());
    bench.start();
    bench.journal.held().await;
    bench.delete(CLASSES).await;
    bench.class(|it| it["parameters"] = json!({ "tier": "bogus" })).await;
    held.cancel();
    bench.journal.line(&made(&name)[1]).await;
    let tiers: Vec<_> = bench.driver.volumes().all_asked().into_iter().collect();
    assert!(tiers.len() >= 2, "{create} was not repeated");
    assert!(tiers.iter().all(|it| it.parameters["tier"] == "fast"), "{tiers:?}");
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_without_its_object_is_found_by_the_next_leader() {
    let Some(mut bench) = Bench::new("mark-unsaved", &[]).await else { return };
    let backoff = bench.options.backoff;
    bench.options.backoff.first = Duration::from_mins(5);
    bench.journal.fail_once(Method::POST, "persistentvolumes", 500);
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.line(&marked(bench.name)[1]).await;
    assert!(is_marked(&bench.get(CLAIMS).await.unwrap()));
    bench.stop_controller().await;
    bench.options.backoff = backoff;
    bench.journal.clear();
    bench.release_claim().await;
    bench.restart();
    bench.expect_settled(&name).await;
    bench.stop().await;
}

/// Annotations of an object have 256 KiB, all together.
#[tokio::test]
async fn a_claim_without_room_for_a_note_is_marked() {
    let Some(mut bench) = Bench::new("mark-full", &[]).await else { return };
    bench.start_driver();
    bench.class(|_| {}).await;
    let full = "x".repeat((256 << 10) - 64);
    let backoff = bench.options.backoff;
    bench.options.backoff.first = Duration::from_mins(5);
    bench.driver.answer(away());
    let name = bench.claim(|it| it["metadata"]["annotations"]["full"] = json!(full)).await;
    bench.restart();
    bench.journal.line(&marked(bench.name)[1]).await;
    let claim = bench.get(CLAIMS).await.unwrap();
    assert!(is_marked(&claim) && claim["metadata"]["annotations"].get(MARK).is_none());
    bench.stop_controller().await;
    bench.options.backoff = backoff;
    bench.journal.clear();
    bench.release_claim().await;
    bench.restart();
    bench.expect_settled(&name).await;
    bench.stop().await;
}
