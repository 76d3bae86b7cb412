use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_proto::csi::volume_content_source::{SnapshotSource, Type, VolumeSource};

use wharf_sidecars::Caches;
use wharf_testkit::process::wait_for;

use super::bench::{Bench, CLAIMS, CLASSES, made};
use crate::driver::Answer;
use crate::journal::DEADLINE;
use crate::snapshots::installed;

const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const RESTORING: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";
const CLONING: &str = "provisioner.storage.kubernetes.io/cloning-protection";

/// How often a driver that is busy says so after it was told to answer.
const BUSY: usize = 6;

impl Bench {
    /// The driver is busy with the first call until it is told to answer, and says so then, and more than once: so what is
    /// done meanwhile has been seen by the last.
    fn busy(&self) -> CancellationToken {
        let told = CancellationToken::new();
        let aborted = || Status::aborted("still at it");
        self.driver.answer(Answer::ErrorWhen(told.clone(), aborted()));
        for _ in 0..BUSY {
            self.driver.answer(Answer::Error(aborted()));
        }
        told
    }

    /// A driver that takes snapshots, with a class and a snapshot that can be used, and a provisioner that does not sweep.
    async fn with_snapshot(name: &'static str) -> Option<Self> {
        let mut bench = Self::new(name, &[rpc::Type::CreateDeleteSnapshot]).await?;
        installed().await;
        bench.options.sweep = Duration::ZERO;
        bench.class(|_| {}).await;
        bench.snapshot(&bench.options.driver, json!(null)).await;
        Some(bench)
    }

    /// A snapshot that can be used, and its content.
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
    let Some(mut bench) = Bench::with_snapshot("prov-restore").await else { return };
    let name = bench.claim(restored("prov-restore")).await;
    bench.start();
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
    bench.journal.expect(lines).await;
    let source = bench.driver.volumes().last_asked().volume_content_source.unwrap();
    let snapshot_id = "prov-restore-handle".to_owned();
    assert_eq!(source.r#type, Some(Type::Snapshot(SnapshotSource { snapshot_id })));
    let snapshot = bench.get(SNAPSHOTS).await.unwrap();
    assert_eq!(snapshot["metadata"]["finalizers"].as_array().map(Vec::len), None);
    bench.stop().await;
}

#[tokio::test]
async fn an_account_that_may_not_hold_snapshots_restores_them_all_the_same() {
    let Some(mut bench) = Bench::with_snapshot("prov-unheld").await else { return };
    bench.journal.fail_once(Method::PUT, "volumesnapshots/prov-unheld", 403);
    let name = bench.claim(restored("prov-unheld")).await;
    bench.start();
    let [create, post] = made(&name);
    let [snapshot, content] = [SNAPSHOTS, CONTENTS].map(|path| format!("{path}/prov-unheld"));
    let read = format!("GET {snapshot}");
    let refused = format!("PUT {snapshot} -> 403");
    let looked = [read.clone(), format!("GET {content}"), read.clone(), refused];
    let lines = bench.journal.wait_for(7).await;
    assert_eq!(lines[..4], looked);
    // It is looked at once more, and there is nothing to let go.
    assert_eq!(lines[4..], [create, post, read]);
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_used_is_named() {
    let capabilities = [rpc::Type::CreateDeleteSnapshot];
    let Some(mut bench) = Bench::new("prov-unready", &capabilities).await else { return };
    installed().await;
    bench.options.sweep = Duration::ZERO;
    bench.class(|_| {}).await;
    bench.snapshot("other", json!(null)).await;
    bench.claim(restored("prov-unready")).await;
    bench.start();
    let prefix = "Warning ProvisioningFailed error getting handle for DataSource Type VolumeSnapshot by Name";
    let foreign = "snapshotcontent prov-unready for snapshot prov-unready is not handled by CSI driver of \
        StorageClass prov-unready";
    bench.journal.event(&format!("{prefix} prov-unready: {foreign}")).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_was_left_held_is_let_go() {
    let capabilities = [rpc::Type::CreateDeleteSnapshot];
    let Some(mut bench) = Bench::new("prov-swept", &capabilities).await else { return };
    installed().await;
    let driver = bench.options.driver.clone();
    bench.snapshot(&driver, json!(["example.com/other", RESTORING])).await;
    bench.start();
    bench.journal.line(&format!("PUT {SNAPSHOTS}/prov-swept")).await;
    let snapshot = bench.get(SNAPSHOTS).await.unwrap();
    assert_eq!(snapshot["metadata"]["finalizers"], json!(["example.com/other"]));
    bench.patch(SNAPSHOTS, json!({ "metadata": { "finalizers": null } })).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_clone_waits_for_its_source_to_be_bound() {
    let Some(mut bench) = Bench::new("prov-early", &[rpc::Type::CloneVolume]).await else { return };
    bench.options.backoff.first = Duration::from_mins(1);
    bench.class(|_| {}).await;
    let source = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.expect(made(&source)).await;
    let cloned = |claim: &mut Value| {
        claim["metadata"]["name"] = json!("prov-early-2");
        claim["spec"]["dataSource"] =
            json!({ "kind": "PersistentVolumeClaim", "name": "prov-early" });
    };
    let name = bench.claim(cloned).await;
    let refused = "Warning ProvisioningFailed error getting handle for DataSource Type PersistentVolumeClaim by Name \
        prov-early: the PVC DataSource prov-early must have a status of Bound.  Got \"Pending\"";
    bench.journal.event(refused).await;
    bench.journal.clear();
    bench.set_phase(&source, "Bound").await;
    bench.bind("prov-early", &source).await;
    let [create, post] = made(&name);
    let claim = "namespaces/default/persistentvolumeclaims/prov-early";
    bench.journal.expect([format!("GET {claim}"), format!("PUT {claim}"), create, post]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_is_cloned_and_stays_meanwhile() {
    let Some(mut bench) = Bench::new("prov-clone", &[rpc::Type::CloneVolume]).await else { return };
    let source = bench.bound().await;
    let cloned = |claim: &mut Value| {
        claim["metadata"]["name"] = json!("prov-clone-2");
        claim["spec"]["dataSource"] =
            json!({ "kind": "PersistentVolumeClaim", "name": "prov-clone" });
    };
    let name = bench.claim(cloned).await;
    let [create, post] = made(&name);
    let claim = "namespaces/default/persistentvolumeclaims/prov-clone";
    let update = [format!("GET {claim}"), format!("PUT {claim}")];
    let [read, hold] = update.clone();
    bench.journal.expect([read, hold, create, post]).await;
    let asked = bench.driver.volumes().last_asked().volume_content_source.unwrap();
    assert_eq!(asked.r#type, Some(Type::Volume(VolumeSource { volume_id: source })));
    let finalizers = bench.get(CLAIMS).await.unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["kubernetes.io/pvc-protection", CLONING]));

    bench.journal.clear();
    bench.delete(CLAIMS).await;
    bench.bind("prov-clone-2", &name).await;
    bench.journal.expect(update).await;
    let finalizers = bench.get(CLAIMS).await.unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!(["kubernetes.io/pvc-protection"]));
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_is_let_go_with_the_last_clone_even_if_that_one_has_no_claim() {
    let name = "prov-orphan";
    let Some(mut bench) = Bench::new(name, &[rpc::Type::CloneVolume]).await else { return };
    bench.bound().await;
    let (told, then) = (CancellationToken::new(), CancellationToken::new());
    bench.driver.answer(Answer::ErrorWhen(told.clone(), Status::aborted("still at it")));
    bench.driver.answer(Answer::When(then.clone()));
    let clone = bench
        .claim(|claim| {
            claim["metadata"]["name"] = json!("prov-orphan-2");
            claim["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": name });
        })
        .await;
    let [create, post] = made(&clone);
    let claim = format!("namespaces/default/persistentvolumeclaims/{name}");
    let update = [format!("GET {claim}"), format!("PUT {claim}")];
    let [read, hold] = update.clone();
    bench.journal.expect([read, hold, format!("{create} -> Aborted")]).await;
    let path = format!("{CLAIMS}/prov-orphan-2");
    bench.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete_at(&path).await;
    told.cancel();
    bench.journal.line(&create).await;

    // It is finished without its claim, and until then its source stays.
    bench.journal.clear();
    bench.delete(CLAIMS).await;
    then.cancel();
    let [read, release] = update;
    bench.journal.expect([post, read, release]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_clone_that_was_begun_is_finished_although_its_claim_source_and_class_go() {
    let name = "prov-begun-clone";
    let Some(mut bench) = Bench::new(name, &[rpc::Type::CloneVolume]).await else { return };
    let source = bench.bound().await;
    let told = bench.busy();
    let clone = bench
        .claim(|claim| {
            claim["metadata"]["name"] = json!("prov-begun-clone-2");
            claim["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": name });
        })
        .await;
    let [create, post] = made(&clone);
    let claim = format!("namespaces/default/persistentvolumeclaims/{name}");
    let [read, write] = [format!("GET {claim}"), format!("PUT {claim}")];
    let refused = format!("{create} -> Aborted");
    bench.journal.expect([read.clone(), write.clone(), refused.clone()]).await;
    let path = format!("{CLAIMS}/prov-begun-clone-2");
    bench.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete_at(&path).await;
    bench.delete(CLAIMS).await;
    bench.delete(CLASSES).await;
    // It would read a claim that it does not know to be gone.
    let all_gone = |caches: &Caches| {
        let source = caches.claims.get(&format!("default/{name}"));
        source.is_some_and(|source| source.metadata.deleting)
            && caches.claims.get(&format!("default/{name}-2")).is_none()
            && caches.storage_classes.get(name).is_none()
    };
    bench.knows("claim, source and class to be gone", all_gone).await;

    bench.journal.clear();
    told.cancel();
    let mut lines = vec![refused; BUSY];
    lines.extend([create, post, read, write]);
    assert_eq!(bench.journal.wait_for(lines.len()).await, lines);
    let asked = bench.driver.volumes().last_asked().volume_content_source.unwrap();
    assert_eq!(asked.r#type, Some(Type::Volume(VolumeSource { volume_id: source })));
    bench.stop().await;
}

#[tokio::test]
async fn a_restore_that_was_begun_is_asked_for_although_its_claim_and_source_go() {
    let name = "prov-begun-restore";
    let Some(mut bench) = Bench::with_snapshot(name).await else { return };
    let volume = bench.claim(restored(name)).await;
    let told = bench.busy();
    bench.driver.answer(Answer::Error(Status::not_found("no such snapshot")));
    bench.start();
    let [create, _] = made(&volume);
    let refused = format!("{create} -> Aborted");
    bench.journal.line(&refused).await;
    bench.delete_claim().await;
    bench.delete(SNAPSHOTS).await;
    // Its content stays: provisioners of other tests would let a snapshot go that has none.
    let unready = json!({ "status": { "readyToUse": false } });
    bench.patch_at(&format!("{CONTENTS}/{name}/status"), unready.clone()).await;
    bench.patch_at(&format!("{SNAPSHOTS}/{name}/status"), unready).await;
    let is_gone = |caches: &Caches| caches.claims.get(&format!("default/{name}")).is_none();
    bench.knows("the claim to be gone", is_gone).await;

    // The driver has the last word, and nobody is held after that.
    bench.journal.clear();
    told.cancel();
    let snapshot = format!("{SNAPSHOTS}/{name}");
    let mut lines = vec![refused; BUSY];
    lines.push(format!("{create} -> NotFound"));
    lines.extend([format!("GET {snapshot}"), format!("PUT {snapshot}")]);
    assert_eq!(bench.journal.wait_for(lines.len()).await, lines);
    assert_eq!(bench.get(SNAPSHOTS).await, None);
    bench.stop().await;
}

#[tokio::test]
async fn a_snapshot_is_let_go_with_the_last_of_many_restores() {
    let name = "prov-restores";
    let Some(mut bench) = Bench::with_snapshot(name).await else { return };
    let first = bench.claim(restored(name)).await;
    let second = bench
        .claim(|claim| {
            restored(name)(claim);
            claim["metadata"]["name"] = json!("prov-restores-2");
        })
        .await;
    bench.start();
    for volume in [&first, &second] {
        bench.journal.line(&made(volume)[1]).await;
    }
    // When the volume of each was made, the other was not bound yet.
    bench.bind(name, &first).await;
    bench.bind("prov-restores-2", &second).await;
    let is_let_go = async || {
        let snapshot = bench.get(SNAPSHOTS).await.unwrap();
        (snapshot["metadata"]["finalizers"] != json!([RESTORING])).then_some(())
    };
    wait_for(DEADLINE, "the snapshot to be let go", is_let_go).await.unwrap();
    bench.stop().await;
}
