//! Volumes in progress when a leader loses its Lease while its process lives on.

use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wharf_sidecars::{Caches, provisioner::StandbyProvisioner};

use super::fixture::{CLAIMS, Fixture, made, marked};
use crate::{driver::Answer, journal::DEADLINE, role};

const METRIC: &str = "wharf_provisioner_unsettled_volumes";

impl Fixture {
    /// Creates a claim whose volume is in progress when the Lease is lost, and clears the journal.
    async fn cut_short(&mut self) -> String {
        self.driver.answer(Answer::When(CancellationToken::new()));
        self.class(|_| {}).await;
        let volume = self.claim(|_| {}).await;
        self.start();
        self.journal.expect([made(&volume)[0].clone()]).await;
        // All work is dropped at once.
        self.tasks.shutdown().await;
        self.journal.clear();
        self.is_same_process = true;
        volume
    }

    /// Runs the work of this process while another replica leads.
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
    let Some(mut fixture) = Fixture::new("carried-again", &[]).await else { return };
    let volume = fixture.cut_short().await;
    fixture.delete_claim().await;
    fixture.lead_again();
    fixture.journal.expect(made(&volume)).await;
    let shown = fixture.persistent_volume(&volume).await.unwrap();
    assert_eq!(shown["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_that_is_still_there_is_marked_for_the_next_leader() {
    let Some(mut fixture) = Fixture::new("carried-marked", &[]).await else { return };
    let volume = fixture.cut_short().await;
    fixture.stand_by();
    let [get, put] = marked(fixture.name);
    let read = |path: &str| format!("GET {path}");
    let known = format!("{} -> 404", read(&format!("persistentvolumes/{volume}")));
    let claim = get.clone();
    fixture.journal.expect([known, claim.clone(), get, put, claim]).await;
    assert_eq!(fixture.unsettled(), "0");
    fixture.stop_controller().await;
    fixture.journal.clear();

    // Another process leads.
    fixture.is_same_process = false;
    fixture.release_claim().await;
    fixture.lead_again();
    let ([create, _], [get, put]) = (made(&volume), marked(fixture.name));
    fixture.journal.expect([create, format!("DeleteVolume {volume}"), get, put]).await;
    assert!(fixture.get(CLAIMS).await.is_none());
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_that_nobody_else_knows_is_counted_until_it_is_settled() {
    let Some(mut fixture) = Fixture::new("carried-counted", &[]).await else { return };
    let volume = fixture.cut_short().await;
    fixture.delete_claim().await;
    fixture.stand_by();
    let [get, _] = marked(fixture.name);
    let known = format!("GET persistentvolumes/{volume} -> 404");
    fixture.journal.expect([known, format!("{get} -> 404")]).await;
    fixture.stop_controller().await;
    assert_eq!(fixture.unsettled(), "1");
    fixture.journal.clear();
    fixture.lead_again();
    fixture.journal.expect(made(&volume)).await;
    fixture.journal.event("Normal ProvisioningSucceeded").await;
    assert_eq!(fixture.unsettled(), "0");
    fixture.stop().await;
}

/// Another leader created the volume, somebody renamed its PersistentVolume, and the claim was
/// deleted.
#[tokio::test]
async fn a_volume_that_somebody_keeps_is_left_alone() {
    let Some(mut fixture) = Fixture::new("carried-kept", &[]).await else { return };
    let volume = fixture.cut_short().await;
    fixture.delete_claim().await;
    let handle = |it: &mut Value| it["spec"]["csi"]["volumeHandle"] = volume.clone().into();
    fixture.released("carried-kept-by-hand", handle).await;
    fixture.set_phase("carried-kept-by-hand", "Bound").await;
    fixture.lead_again();
    fixture.journal.expect([made(&volume)[0].clone()]).await;
    // Objects that are seen later are served later.
    let next = fixture.claim(|it| it["metadata"]["name"] = "carried-kept-next".into()).await;
    let ([create, _], [other, post]) = (made(&volume), made(&next));
    fixture.journal.expect([create, other, post]).await;
    assert_eq!(fixture.unsettled(), "0");
    assert!(fixture.driver.volumes().made().contains(&volume));
    fixture.stop().await;
}
