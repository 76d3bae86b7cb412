//! Standby replicas remove the finalizer from bound claims, whichever program leads.

use serde_json::json;

use crate::{
    audit,
    life::{Life, VOLUMES},
    program::{Kind, Make, Program},
    role::READER,
    sidecar::{Order, Sidecar},
    site::Site,
    unsettled::{MARK, PROVISIONER, TIMEOUT, is_marked, marked, start},
};

/// Sees to it that a replica of ours on this host leads, or that none of ours does.
async fn leads(site: &Site, host: Option<&str>) {
    let term = site.term(&Kind::Provisioner.lease(&site.name), |_| true).await;
    // Go's provisioner makes up a name.
    let ours = ["first", "second", "ours"].into_iter().find(|host| *host == term.holder);
    assert_eq!(ours, host, "{} leads", term.holder);
}

/// Marks a claim as a provisioner does that was killed afterwards.
async fn mark(site: &Site, life: &Life<'_>) {
    let claim = site.api.get(&life.claim()).await.unwrap();
    let mut finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.push(json!(MARK));
    let version = &claim["metadata"]["resourceVersion"];
    let metadata = json!({ "finalizers": finalizers, "resourceVersion": version });
    site.api.patch(&life.claim(), &json!({ "metadata": metadata })).await;
}

async fn unmarked(site: &Site, life: &Life<'_>) {
    site.api.wait(&life.claim(), |claim| !is_marked(claim)).await;
}

/// A PersistentVolume of the driver that nobody was asked for, bound to the claim.
async fn bind_to_another(site: &Site, life: &Life<'_>, name: &str) {
    let claim = site.api.get(&life.claim()).await.unwrap();
    let (metadata, spec) = (&claim["metadata"], &claim["spec"]);
    let owner = json!({
        "namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"],
    });
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": { "storage": "1Gi" },
            "claimRef": owner,
            "storageClassName": site.name,
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": { "driver": site.name, "volumeHandle": name },
        },
    });
    site.api.create(VOLUMES, "PersistentVolume", volume).await;
    site.api.patch(&life.claim(), &json!({ "spec": { "volumeName": name } })).await;
}

#[tokio::test]
async fn a_standby_of_our_leader_removes_the_mark_of_a_bound_claim() {
    let Some(site) = Site::new("standby-ours").await else { return };
    // The leader may not write to claims, so that a mark that goes is removed by the other.
    let order = Order { user: READER, ..site.order(PROVISIONER, Some("first")) };
    let mut leader = order.start().unwrap();
    let life = Life::begin(&site, "data").await;
    leads(&site, Some("first")).await;
    mark(&site, &life).await;
    leader.said("failed to remove mark", 1).await;
    let _standby = start(&site, Some("second"));
    unmarked(&site, &life).await;
    leads(&site, Some("first")).await;
    // The leader goes on as if it had removed the mark itself.
    life.end().await;
    leads(&site, Some("first")).await;
    site.ledger.assert_clean();
    assert_eq!(site.ledger.calls("CreateVolume"), 1);
    audit::assert_allowed(&site);
}

/// Go's provisioner takes over from ours, which has left marks, and ours stands by from then on.
async fn beside_go(site: &Site, ours: Program) {
    site.ledger.hold("CreateVolume");
    let mut first = start(site, Some("ours"));
    let (bound, other) = (Life::ask(site, "bound").await, Life::ask(site, "other").await);
    for life in [&bound, &other] {
        marked(site, life).await;
    }
    first.kill().await;
    // The volume that the driver was asked for is not the one that this claim gets.
    bind_to_another(site, &other, &format!("{}-another", site.name)).await;
    let Some(mut go) = site.start_elected(Kind::Provisioner, Make::Go) else { return };
    site.leads(Kind::Provisioner, Make::Go).await;
    let mut standby: Sidecar =
        Order { more: TIMEOUT, ..site.order(ours, Some("ours")) }.start().unwrap();
    site.ledger.release();
    bound.bind().await;
    unmarked(site, &bound).await;
    leads(site, None).await;
    assert!(is_marked(&site.api.get(&other.claim()).await.unwrap()), "the volume is forgotten");
    bound.end().await;

    // The next leader of ours settles what is left.
    leads(site, None).await;
    go.stop().await;
    unmarked(site, &other).await;
    leads(site, Some("ours")).await;
    assert_eq!(site.ledger.volumes(), 0, "a volume is left at the driver");
    standby.stop().await;
    audit::assert_allowed(site);
}

#[tokio::test]
async fn a_standby_of_go_removes_the_mark_of_a_bound_claim() {
    let Some(site) = Site::new("standby-go").await else { return };
    beside_go(&site, PROVISIONER).await;
}

/// Its other controllers lead, so that it has all claims in its cache.
#[tokio::test]
async fn a_process_that_leads_with_other_controllers_removes_marks_beside_go() {
    let Some(site) = Site::with_snapshots("standby-joint").await else { return };
    beside_go(&site, Program::Combined).await;
}

/// A mark on a claim that is bound to a PersistentVolume of another claim stays.
#[tokio::test]
async fn a_standby_leaves_the_mark_where_the_volume_is_of_another_claim() {
    let Some(site) = Site::new("standby-foreign").await else { return };
    let order = Order { user: READER, ..site.order(PROVISIONER, Some("first")) };
    let mut leader = order.start().unwrap();
    let (data, foreign) = (Life::begin(&site, "data").await, Life::ask(&site, "foreign").await);
    foreign.bind().await;
    leads(&site, Some("first")).await;
    site.api
        .patch(
            &format!("{VOLUMES}/{}", foreign.volume()),
            &json!({ "spec": { "claimRef": { "uid": "of-another" } } }),
        )
        .await;
    for life in [&foreign, &data] {
        mark(&site, life).await;
    }
    let mut standby = start(&site, Some("second"));
    standby.said("does not belong to it", 1).await;
    unmarked(&site, &data).await;
    assert!(is_marked(&site.api.get(&foreign.claim()).await.unwrap()));
    standby.stop().await;
    leader.stop().await;
}
