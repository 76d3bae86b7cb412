use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::{
    controller_service_capability::rpc,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};

use wharf_sidecars::Caches;
use wharf_testkit::process::wait_for;

use super::fixture::{CLAIMS, CLASSES, Fixture, made};
use crate::{driver::Answer, journal::DEADLINE, snapshots::installed};

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const RESTORING: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";
const CLONING: &str = "provisioner.storage.kubernetes.io/cloning-protection";

/// The number of busy answers after the token is cancelled.
const BUSY: usize = 6;

impl Fixture {
    /// Answers the first call when the token is cancelled, with a busy error, and the next ones
    /// with that error as well: the last call then sees all changes that were made meanwhile.
    fn busy(&self) -> CancellationToken {
        let told = CancellationToken::new();
        let aborted = || Status::aborted("still at it");
        self.driver.answer(Answer::ErrorWhen(told.clone(), aborted()));
        for _ in 0..BUSY {
            self.driver.answer(Answer::Error(aborted()));
        }
        told
    }

    /// A driver with snapshots, a class and a usable snapshot, and a provisioner that does not
    /// sweep.
    async fn with_snapshot(name: &'static str) -> Option<Self> {
        let mut fixture = Self::new(name, &[rpc::Type::CreateDeleteSnapshot]).await?;
        installed().await;
        fixture.options.sweep = Duration::ZERO;
        fixture.class(|_| {}).await;
        fixture.snapshot(&fixture.options.driver, json!(null)).await;
        Some(fixture)
    }

    /// Creates a usable snapshot and its content.
    async fn snapshot(&self, driver: &str, finalizers: Value) {
        let place = json!({ "name": self.name, "namespace": "default" });
        let handle = format!("{}-handle", self.name);
        let content = json!({
            "metadata": { "name": self.name },
            "spec": {
                "driver": driver,
                "deletionPolicy": "Delete",
                "source": { "snapshotHandle": handle },
                "volumeSnapshotRef": place,
            },
        });
        self.create(CONTENTS, "VolumeSnapshotContent", content).await;
        let status = json!({ "status": { "snapshotHandle": handle, "readyToUse": true } });
        self.patch_at(&format!("{CONTENTS}/{}/status", self.name), status).await;
        let snapshot = json!({
            "metadata": { "name": self.name, "finalizers": finalizers },
            "spec": { "source": { "volumeSnapshotContentName": self.name } },
        });
        let made = self.create(SNAPSHOTS, "VolumeSnapshot", snapshot).await;
        let status = json!({ "status": {
            "boundVolumeSnapshotContentName": self.name, "readyToUse": true, "restoreSize": "1Gi",
        } });
        self.patch_at(&format!("{SNAPSHOTS}/{}/status", self.name), status).await;
        let uid = made["metadata"]["uid"].clone();
        let bound = json!({ "name": self.name, "namespace": "default", "uid": uid });
        self.patch(CONTENTS, json!({ "spec": { "volumeSnapshotRef": bound } })).await;
    }
}

fn restored(name: &str) -> impl Fn(&mut Value) {
    let source =
        json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name });
    move |claim| claim["spec"]["dataSource"] = source.clone()
}

#[tokio::test]
async fn a_volume_is_made_of_a_snapshot_that_stays_meanwhile() {
    let Some(mut fixture) = Fixture::with_snapshot("prov-restore").await else { return };
    let name = fixture.claim(restored("prov-restore")).await;
    fixture.start();
    let [create, post] = made(&name);
    let [snapshot, content] = [SNAPSHOTS, CONTENTS].map(|path| format!("{path}/prov-restore"));
    let update = || [format!("GET {snapshot}"), format!("PUT {snapshot}")];
    let ([read, hold], [read_again, release]) = (update(), update());
    let lines = [
        format!("GET {snapshot}"),
        format!("GET {content}"),
        read,
        hold,
        create,
        post,
        read_again,
        release,
    ];
    fixture.journal.expect(lines).await;
    let source = fixture.driver.volumes().last_asked().volume_content_source.unwrap();
    let snapshot_id = "prov-restore-handle".to_owned();
    assert_eq!(source.r#type, Some(Type::Snapshot(SnapshotSource { snapshot_id })));
    let snapshot = fixture.get(SNAPSHOTS).await.unwrap();
    assert_eq!(snapshot["metadata"]["finalizers"].as_array().map(Vec::len), None);
    fixture.stop().await;
}

#[tokio::test]
async fn an_account_that_may_not_hold_snapshots_restores_them_all_the_same() {
    let Some(mut fixture) = Fixture::with_snapshot("prov-unheld").await else { return };
    fixture.journal.fail_once(Method::PUT, "volumesnapshots/prov-unheld", 403);
    let name = fixture.claim(restored("prov-unheld")).await;
    fixture.start();
    let [create, post] = made(&name);
    let [snapshot, content] = [SNAPSHOTS, CONTENTS].map(|path| format!("{path}/prov-unheld"));
    let read = format!("GET {snapshot}");
    let refused = format!("PUT {snapshot} -> 403");
    let looked = [read.clone(), format!("GET {content}"), read.clone(), refused];
    let lines = fixture.journal.wait_for(7).await;
    assert_eq!(lines[..4], looked);
    // It is processed again, and has no protection to remove.
    assert_eq!(lines[4..], [create, post, read]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_used_is_named() {
    let capabilities = [rpc::Type::CreateDeleteSnapshot];
    let Some(mut fixture) = Fixture::new("prov-unready", &capabilities).await else { return };
    installed().await;
    fixture.options.sweep = Duration::ZERO;
    fixture.class(|_| {}).await;
    fixture.snapshot("other", json!(null)).await;
    fixture.claim(restored("prov-unready")).await;
    fixture.start();
    let prefix = "Warning ProvisioningFailed error getting handle for DataSource Type VolumeSnapshot by Name";
    let foreign = "snapshotcontent prov-unready for snapshot prov-unready is not handled by CSI driver of \
        StorageClass prov-unready";
    fixture.journal.event(&format!("{prefix} prov-unready: {foreign}")).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_was_left_held_is_let_go() {
    let capabilities = [rpc::Type::CreateDeleteSnapshot];
    let Some(mut fixture) = Fixture::new("prov-swept", &capabilities).await else { return };
    installed().await;
    let driver = fixture.options.driver.clone();
    fixture.snapshot(&driver, json!(["example.com/other", RESTORING])).await;
    fixture.start();
    fixture.journal.line(&format!("PUT {SNAPSHOTS}/prov-swept")).await;
    let snapshot = fixture.get(SNAPSHOTS).await.unwrap();
    assert_eq!(snapshot["metadata"]["finalizers"], json!(["example.com/other"]));
    fixture.patch(SNAPSHOTS, json!({ "metadata": { "finalizers": null } })).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_clone_waits_for_its_source_to_be_bound() {
    let Some(mut fixture) = Fixture::new("prov-early", &[rpc::Type::CloneVolume]).await else {
        return;
    };
    fixture.options.backoff.first = Duration::from_mins(1);
    fixture.class(|_| {}).await;
    let source = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.expect(made(&source)).await;
    let cloned = |claim: &mut Value| {
        claim["metadata"]["name"] = json!("prov-early-2");
        claim["spec"]["dataSource"] =
            json!({ "kind": "PersistentVolumeClaim", "name": "prov-early" });
    };
    let name = fixture.claim(cloned).await;
    let refused = "Warning ProvisioningFailed error getting handle for DataSource Type PersistentVolumeClaim by Name \
        prov-early: the PVC DataSource prov-early must have a status of Bound.  Got \"Pending\"";
    fixture.journal.event(refused).await;
    fixture.journal.clear();
    fixture.set_phase(&source, "Bound").await;
    fixture.bind("prov-early", &source).await;
    let [create, post] = made(&name);
    let claim = "namespaces/default/persistentvolumeclaims/prov-early";
    fixture.journal.expect([format!("GET {claim}"), format!("PUT {claim}"), create, post]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_is_cloned_and_stays_meanwhile() {
    let Some(mut fixture) = Fixture::new("prov-clone", &[rpc::Type::CloneVolume]).await else {
        return;
    };
    let source = fixture.bound().await;
    let cloned = |claim: &mut Value| {
        claim["metadata"]["name"] = json!("prov-clone-2");
        claim["spec"]["dataSource"] =
            json!({ "kind": "PersistentVolumeClaim", "name": "prov-clone" });
    };
    let name = fixture.claim(cloned).await;
    let [create, post] = made(&name);
    let claim = "namespaces/default/persistentvolumeclaims/prov-clone";
    let update = [format!("GET {claim}"), format!("PUT {claim}")];
    let [read, hold] = update.clone();
    fixture.journal.expect([read, hold, create, post]).await;
    let asked = fixture.driver.volumes().last_asked().volume_content_source.unwrap();
    assert_eq!(asked.r#type, Some(Type::Volume(VolumeSource { volume_id: source })));
    let finalizers = fixture.get(CLAIMS).await.unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["kubernetes.io/pvc-protection", CLONING]));

    fixture.journal.clear();
    fixture.delete(CLAIMS).await;
    fixture.bind("prov-clone-2", &name).await;
    fixture.journal.expect(update).await;
    let finalizers = fixture.get(CLAIMS).await.unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["kubernetes.io/pvc-protection"]));
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_is_let_go_with_the_last_clone_even_if_that_one_has_no_claim() {
    let name = "prov-orphan";
    let Some(mut fixture) = Fixture::new(name, &[rpc::Type::CloneVolume]).await else { return };
    fixture.bound().await;
    let (told, then) = (CancellationToken::new(), CancellationToken::new());
    fixture.driver.answer(Answer::ErrorWhen(told.clone(), Status::aborted("still at it")));
    fixture.driver.answer(Answer::When(then.clone()));
    let clone = fixture
        .claim(|claim| {
            claim["metadata"]["name"] = json!("prov-orphan-2");
            claim["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": name });
        })
        .await;
    let [create, post] = made(&clone);
    let claim = format!("namespaces/default/persistentvolumeclaims/{name}");
    let update = [format!("GET {claim}"), format!("PUT {claim}")];
    let [read, hold] = update.clone();
    fixture.journal.expect([read, hold, format!("{create} -> Aborted")]).await;
    let path = format!("{CLAIMS}/prov-orphan-2");
    fixture.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete_at(&path).await;
    told.cancel();
    fixture.journal.line(&create).await;

    // It is finished without its claim, and until then its source is protected.
    fixture.journal.clear();
    fixture.delete(CLAIMS).await;
    then.cancel();
    let [read, release] = update;
    fixture.journal.expect([post, read, release]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_clone_that_was_begun_is_finished_although_its_claim_source_and_class_go() {
    let name = "prov-begun-clone";
    let Some(mut fixture) = Fixture::new(name, &[rpc::Type::CloneVolume]).await else { return };
    let source = fixture.bound().await;
    let told = fixture.busy();
    let clone = fixture
        .claim(|claim| {
            claim["metadata"]["name"] = json!("prov-begun-clone-2");
            claim["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": name });
        })
        .await;
    let [create, post] = made(&clone);
    let claim = format!("namespaces/default/persistentvolumeclaims/{name}");
    let [read, write] = [format!("GET {claim}"), format!("PUT {claim}")];
    let refused = format!("{create} -> Aborted");
    fixture.journal.expect([read.clone(), write.clone(), refused.clone()]).await;
    let path = format!("{CLAIMS}/prov-begun-clone-2");
    fixture.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete_at(&path).await;
    fixture.delete(CLAIMS).await;
    fixture.delete(CLASSES).await;
    // It would read a claim that is not known to be gone.
    let all_gone = |caches: &Caches| {
        let source = caches.claims.get(&format!("default/{name}"));
        source.is_some_and(|source| source.metadata.deleting)
            && caches.claims.get(&format!("default/{name}-2")).is_none()
            && caches.storage_classes.get(name).is_none()
    };
    fixture.knows("claim, source and class to be gone", all_gone).await;

    fixture.journal.clear();
    told.cancel();
    let mut lines = vec![refused; BUSY];
    lines.extend([create, post, read, write]);
    assert_eq!(fixture.journal.wait_for(lines.len()).await, lines);
    let asked = fixture.driver.volumes().last_asked().volume_content_source.unwrap();
    assert_eq!(asked.r#type, Some(Type::Volume(VolumeSource { volume_id: source })));
    fixture.stop().await;
}

#[tokio::test]
async fn a_restore_that_was_begun_is_asked_for_although_its_claim_and_source_go() {
    let name = "prov-begun-restore";
    let Some(mut fixture) = Fixture::with_snapshot(name).await else { return };
    let volume = fixture.claim(restored(name)).await;
    let told = fixture.busy();
    fixture.driver.answer(Answer::Error(Status::not_found("no such snapshot")));
    fixture.start();
    let [create, _] = made(&volume);
    let refused = format!("{create} -> Aborted");
    fixture.journal.line(&refused).await;
    fixture.delete_claim().await;
    fixture.delete(SNAPSHOTS).await;
    // Its content stays: provisioners of other tests would remove the protection of a snapshot
    // without one.
    let unready = json!({ "status": { "readyToUse": false } });
    fixture.patch_at(&format!("{CONTENTS}/{name}/status"), unready.clone()).await;
    fixture.patch_at(&format!("{SNAPSHOTS}/{name}/status"), unready).await;
    let is_gone = |caches: &Caches| caches.claims.get(&format!("default/{name}")).is_none();
    fixture.knows("the claim to be gone", is_gone).await;

    // The driver decides, and no source is protected after that.
    fixture.journal.clear();
    told.cancel();
    let snapshot = format!("{SNAPSHOTS}/{name}");
    let mut lines = vec![refused; BUSY];
    lines.push(format!("{create} -> NotFound"));
    lines.extend([format!("GET {snapshot}"), format!("PUT {snapshot}")]);
    assert_eq!(fixture.journal.wait_for(lines.len()).await, lines);
    assert_eq!(fixture.get(SNAPSHOTS).await, None);
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_is_let_go_with_the_last_of_many_restores() {
    let name = "prov-restores";
    let Some(mut fixture) = Fixture::with_snapshot(name).await else { return };
    let first = fixture.claim(restored(name)).await;
    let second = fixture
        .claim(|claim| {
            restored(name)(claim);
            claim["metadata"]["name"] = json!("prov-restores-2");
        })
        .await;
    fixture.start();
    for volume in [&first, &second] {
        fixture.journal.line(&made(volume)[1]).await;
    }
    // When the volume of each was created, the other was not bound yet.
    fixture.bind(name, &first).await;
    fixture.bind("prov-restores-2", &second).await;
    let is_let_go = async || {
        let snapshot = fixture.get(SNAPSHOTS).await.unwrap();
        (snapshot["metadata"]["finalizers"] != json!([RESTORING])).then_some(())
    };
    wait_for(DEADLINE, "the snapshot to be let go", is_let_go).await.unwrap();
    fixture.stop().await;
}
