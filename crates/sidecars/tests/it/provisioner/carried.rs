//! Volumes in the making when a leader loses its Lease: the process lives on.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wharf_sidecars::{Caches, provisioner::StandbyProvisioner};

use super::bench::{Bench, CLAIMS, made, marked};
use crate::driver::Answer;
use crate::journal::DEADLINE;
use crate::role;

const METRIC: &str = "wharf_provisioner_unsettled_volumes";

impl Bench {
    /// A claim whose volume the driver is making when the Lease is lost. The journal is empty then.
    async fn cut_short(&mut self) -> String {
        self.driver.answer(Answer::When(CancellationToken::new()));
        self.class(|_| {}).await;
        let volume = self.claim(|_| {}).await;
        self.start();
        self.journal.expect([made(&volume)[0].clone()]).await;
        // All work is dropped where it stands.
        self.tasks.shutdown().await;
        self.journal.clear();
        self.is_same_process = true;
        volume
    }

    /// The work of this process while another replica leads.
    fn stand_by(&mut self) {
        let client = self.journal.client(&self.wire, Some(role::PROVISIONER));
        let caches = Caches::of_all_drivers();
        let standby = StandbyProvisioner::new(self.options.clone(), client, caches);
        let stop = self.stop.clone();
        self.tasks.spawn(standby.run(stop));
    }

    fn lead_again(&mut self) {
        self.start_provisioner(&self.socket(), DEADLINE);
    }

    fn unsettled(&self) -> String {
        let mut registry = Registry::default();
        self.options.unsettled.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let line = text.lines().find(|line| line.starts_with(METRIC)).unwrap();
        line.rsplit_once(' ').unwrap().1.to_owned()
    }
}

#[tokio::test]
async fn a_leader_that_leads_again_finishes_the_volume_of_a_claim_that_went() {
    let Some(mut bench) = Bench::new("carried-again", &[]).await else { return };
    let volume = bench.cut_short().await;
    bench.delete_claim().await;
    bench.lead_again();
    bench.journal.expect(made(&volume)).await;
    let shown = bench.persistent_volume(&volume).await.unwrap();
    assert_eq!(shown["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_that_is_still_there_is_marked_for_the_next_leader() {
    let Some(mut bench) = Bench::new("carried-marked", &[]).await else { return };
    let volume = bench.cut_short().await;
    bench.stand_by();
    let [get, put] = marked(bench.name);
    let read = |path: &str| format!("GET {path}");
    let known = format!("{} -> 404", read(&format!("persistentvolumes/{volume}")));
    let claim = get.clone();
    bench.journal.expect([known, claim.clone(), get, put, claim]).await;
    assert_eq!(bench.unsettled(), "0");
    bench.stop_controller().await;
    bench.journal.clear();

    // Another process leads.
    bench.is_same_process = false;
    bench.release_claim().await;
    bench.lead_again();
    let ([create, _], [get, put]) = (made(&volume), marked(bench.name));
    bench.journal.expect([create, format!("DeleteVolume {volume}"), get, put]).await;
    assert!(bench.get(CLAIMS).await.is_none());
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_that_nobody_else_knows_is_counted_until_it_is_settled() {
    let Some(mut bench) = Bench::new("carried-counted", &[]).await else { return };
    let volume = bench.cut_short().await;
    bench.delete_claim().await;
    bench.stand_by();
    let [get, _] = marked(bench.name);
    let known = format!("GET persistentvolumes/{volume} -> 404");
    bench.journal.expect([known, format!("{get} -> 404")]).await;
    bench.stop_controller().await;
    assert_eq!(bench.unsettled(), "1");
    bench.journal.clear();
    bench.lead_again();
    bench.journal.expect(made(&volume)).await;
    bench.journal.event("Normal ProvisioningSucceeded").await;
    assert_eq!(bench.unsettled(), "0");
    bench.stop().await;
}

/// Another leader made the volume, somebody kept it under another name, and the claim went.
#[tokio::test]
async fn a_volume_that_somebody_keeps_is_left_alone() {
    let Some(mut bench) = Bench::new("carried-kept", &[]).await else { return };
    let volume = bench.cut_short().await;
    bench.delete_claim().await;
    let handle = |it: &mut Value| it["spec"]["csi"]["volumeHandle"] = volume.clone().into();
    bench.released("carried-kept-by-hand", handle).await;
    bench.set_phase("carried-kept-by-hand", "Bound").await;
    bench.lead_again();
    bench.journal.expect([made(&volume)[0].clone()]).await;
    // What is seen later is served later.
    let next = bench.claim(|it| it["metadata"]["name"] = "carried-kept-next".into()).await;
    let ([create, _], [other, post]) = (made(&volume), made(&next));
    bench.journal.expect([create, other, post]).await;
    assert_eq!(bench.unsettled(), "0");
    assert!(bench.driver.volumes().made().contains(&volume));
    bench.stop().await;
}
