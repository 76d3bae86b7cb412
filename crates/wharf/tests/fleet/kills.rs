//! kill -9 between a call's effect at the driver and the write that records it.

use crate::{
    life::Life,
    program::{Kind, Make},
    sidecar::Sidecar,
    site::Site,
};

struct Scene<'a> {
    site: &'a Site,
    /// Processes, each with the controllers that it runs.
    processes: Vec<(Vec<Kind>, Sidecar)>,
}

impl Scene<'_> {
    /// Takes the step, and kills the controllers when the driver has done its part of it, before it
    /// answers. Those that are started then have to ask again.
    async fn killed<T>(
        &mut self,
        kinds: &[Kind],
        rpc: &'static str,
        step: impl Future<Output = T>,
    ) -> T {
        let ledger = &self.site.ledger;
        let before = ledger.calls(rpc);
        ledger.hold(rpc);
        let runs = |own: &[Kind]| own.iter().any(|kind| kinds.contains(kind));
        let mut victims: Vec<&mut Sidecar> = self
            .processes
            .iter_mut()
            .filter(|(own, _)| runs(own))
            .map(|(_, sidecar)| sidecar)
            .collect();
        let kill = async {
            ledger.held().await;
            for sidecar in &mut victims {
                sidecar.kill().await;
            }
            ledger.release();
            for sidecar in victims {
                sidecar.start_again();
            }
        };
        let (done, ()) = tokio::join!(step, kill);
        assert!(ledger.calls(rpc) >= before + 2, "{rpc} was not called again");
        ledger.assert_single();
        done
    }
}

/// A life in which every call is followed by a kill.
async fn survive(site: &Site, processes: Vec<(Vec<Kind>, Sidecar)>) {
    let (provisioner, attacher) = (&[Kind::Provisioner], &[Kind::Attacher]);
    let (resizer, snapshots) = (&[Kind::Resizer], &[Kind::Snapshotter, Kind::SnapshotController]);
    let mut scene = Scene { site, processes };
    let life = scene.killed(provisioner, "CreateVolume", Life::begin(site, "data")).await;
    scene.killed(attacher, "ControllerPublishVolume", life.attach()).await;
    scene.killed(snapshots, "CreateSnapshot", life.snapshot()).await;
    life.assert_protected().await;
    let restored = scene.killed(provisioner, "CreateVolume", life.restore()).await;
    scene.killed(resizer, "ControllerExpandVolume", life.expand()).await;
    scene.killed(resizer, "ControllerModifyVolume", life.modify()).await;
    scene.killed(attacher, "ControllerUnpublishVolume", life.detach()).await;
    scene.killed(snapshots, "DeleteSnapshot", life.delete_snapshot()).await;
    scene.killed(provisioner, "DeleteVolume", life.end()).await;
    scene.killed(provisioner, "DeleteVolume", restored.end()).await;
    site.ledger.assert_clean();
}

#[tokio::test]
async fn each_sidecar_takes_up_what_its_killed_self_left() {
    let Some(site) = Site::with_snapshots("killed-each").await else { return };
    let started = Kind::ALL.map(|kind| (vec![kind], site.start(kind, Make::Ours).unwrap()));
    survive(&site, started.into()).await;
}

#[tokio::test]
async fn one_process_takes_up_what_its_killed_self_left() {
    let Some(site) = Site::with_snapshots("killed-joint").await else { return };
    survive(&site, vec![(Kind::ALL.to_vec(), site.start_combined())]).await;
}
