//! Provisioners that stop, as in a rolling update, while the driver creates the volume of a deleted
//! claim.

use crate::{
    life::Life,
    sidecar::{Order, Sidecar},
    site::Site,
    unsettled::{PROVISIONER, deleted, is_marked},
};

const LEFT: &str = "volume of a deleted claim may be left at the driver";

/// A leader, and a claim that was deleted before it was marked, whose volume the driver has made
/// and not yet told of.
async fn under_way<'a>(site: &'a Site, more: &[&str]) -> (Sidecar, Life<'a>) {
    site.ledger.hold("CreateVolume");
    let more = [&["--timeout=10m"], more].concat();
    let order = Order { more: &more, ..site.order(PROVISIONER, Some("first")) };
    let first = order.start().unwrap();
    let life = Life::ask(site, "data").await;
    site.ledger.held().await;
    assert!(!is_marked(&site.api.get(&life.claim()).await.unwrap()), "marked too early");
    life.delete_claim().await;
    site.api.gone(&life.claim()).await;
    assert_eq!(site.ledger.volumes(), 1);
    (first, life)
}

#[tokio::test]
async fn a_volume_that_is_made_while_its_leader_ends_is_shown_and_deleted() {
    let Some(site) = Site::new("stopped-answered").await else { return };
    for release in [&[][..], &["--feature-gates=ReleaseLeaderElectionOnExit=true"]] {
        let (mut first, life) = under_way(&site, release).await;
        // The signal is sent before its end is waited for.
        tokio::join!(first.stop(), async { site.ledger.release() });
        assert!(!first.log().contains(LEFT), "{}", first.log());
        first.start_again();
        deleted(&site, &life).await;
        first.stop().await;
        site.ledger.assert_clean();
    }
}

#[tokio::test]
async fn a_volume_that_a_leader_that_ends_cannot_find_out_about_is_named() {
    let Some(site) = Site::new("stopped-unanswered").await else { return };
    let (mut first, life) = under_way(&site, &[]).await;
    first.stop().await;
    let log = first.log();
    let line = log.lines().find(|line| line.contains(LEFT));
    assert!(line.is_some_and(|line| line.contains(life.volume())), "{log}");
    site.ledger.release();
}
