//! `wharf resizer`, also as csi-resizer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use wharf_cli::{FeatureGates, Flag, FlagError, FlagSet, Gate, Parsed, Stage};
use wharf_cluster::{EventRecorder, Events};
use wharf_facts::lease;
use wharf_sidecars::{
    not_served::Gap,
    resizer::{Resizer, ResizerOptions},
};

use super::{
    controller::{Cluster, Controller, MakeController},
    driver::{ConnectedDriver, DriverSource},
    flags::{
        Common, CommonFlags, DriverFlags, MasterFlag, NodeFlag, RELEASE_ON_EXIT, Retired,
        RetryFlags, retire, workers,
    },
    runner::{ControllerSpec, Personality},
};
use crate::unserved;

/// Upstream's name.
const PROGRAM: &str = "csi-resizer";

const ANNOTATE_FS_RESIZE: Gate = Gate::new("AnnotateFsResize", Stage::Beta, true);
const ATTRIBUTES_CLASS: Gate = Gate::new("VolumeAttributesClass", Stage::Ga, true);
/// Lets users lower the size of a failed expansion. Always on here.
const RECOVER: Gate = Gate::new("RecoverVolumeExpansionFailure", Stage::Ga, true).fixed();

/// Pause between two calls to a driver that does not answer.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Flags {
    common: CommonFlags,
    driver: DriverFlags,
    master: MasterFlag,
    workers: Flag<i64>,
    resync_period: Flag<Duration>,
    retry: RetryFlags,
    in_use: Flag<bool>,
    extra_metadata: Flag<bool>,
    node: NodeFlag,
}

impl Personality for Flags {
    const NAME: &'static str = "resizer";
    const ABOUT: &'static str = "Grows and modifies volumes: calls the CSI driver for each PersistentVolumeClaim that asks for it.";
    type Source = DriverSource;

    fn register(set: &mut FlagSet) -> Self {
        let gates =
            FeatureGates::new(&[ANNOTATE_FS_RESIZE, ATTRIBUTES_CLASS, RECOVER, RELEASE_ON_EXIT]);
        let gates = unserved::foreign_gates(gates, PROGRAM);
        let flags = Self {
            common: CommonFlags::register(set, gates),
            driver: DriverFlags::register(set, Duration::from_secs(10)),
            master: MasterFlag::register(set),
            workers: set.int(
                "workers",
                10,
                "Workers that grow volumes, and as many that modify them.",
            ),
            resync_period: set.duration(
                "resync-period",
                Duration::from_mins(10),
                "Interval at which every PersistentVolumeClaim is processed again, changed or not. 0: never.",
            ),
            retry: RetryFlags::register(set),
            in_use: set.bool(
                "handle-volume-inuse-error",
                true,
                "Watch pods: an expansion that the CSI driver refuses because the volume is in use waits until no pod uses it.",
            ),
            extra_metadata: set.bool(
                "extra-modify-metadata",
                false,
                "Pass the names of the claim and the PersistentVolume to the CSI driver with each modification.",
            ),
            node: NodeFlag::register(set),
        };
        unserved::warn_of(set, PROGRAM);
        retire(set, &[("csiTimeout", Retired::Time, "--timeout bounds calls to the CSI driver")]);
        flags
    }

    fn common(&self) -> &CommonFlags {
        &self.common
    }

    fn plan(
        &self,
        parsed: &Parsed,
        mut common: Common,
    ) -> Result<ControllerSpec<DriverSource>, FlagError> {
        let mut controller = Claims(self.options(parsed, &common)?);
        common.access = self.master.access(parsed, common.access)?;
        let mut driver = self.driver.options(parsed)?;
        driver.node.place = controller.0.node.is_some();
        driver.node.capabilities = true;
        let make: MakeController = Box::new(move |_, queues| {
            controller.0.queues = Some(queues.clone());
            Arc::new(controller)
        });
        Ok(ControllerSpec::of_driver(Self::NAME, common, driver, lease::resizer, make))
    }
}

impl Flags {
    /// The options without the driver's name, which is not known yet.
    fn options(&self, parsed: &Parsed, common: &Common) -> Result<ResizerOptions, FlagError> {
        let gates = parsed.get(&self.common.gates);
        Ok(ResizerOptions {
            driver: String::new(),
            node: self.node.name(parsed, common)?,
            workers: workers(parsed, &self.workers)?,
            backoff: self.retry.backoff(parsed),
            resync: *parsed.get(&self.resync_period),
            in_use: *parsed.get(&self.in_use),
            annotate: gates.enabled(&ANNOTATE_FS_RESIZE),
            modify: gates.enabled(&ATTRIBUTES_CLASS),
            extra_metadata: *parsed.get(&self.extra_metadata),
            queues: None,
        })
    }
}

/// Runs the resizer for the driver that is connected.
struct Claims(ResizerOptions);

#[async_trait]
impl Controller for Claims {
    async fn run(
        &self,
        Cluster { client, caches, .. }: Cluster,
        driver: ConnectedDriver,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let component = format!("external-resizer {}", driver.name);
        let (events, writer) = Events::new(EventRecorder::new(client.clone(), component, ""));
        let options = ResizerOptions { driver: driver.name, ..self.0.clone() };
        let made = async {
            loop {
                let (options, driver, events) =
                    (options.clone(), driver.driver.clone(), events.clone());
                match Resizer::new(options, client.clone(), driver, caches.clone(), events).await {
                    Err(error) if error.may_pass() => {
                        warn!(%error, "failed to get CSI driver's capabilities, retrying");
                        sleep(PAUSE).await;
                    }
                    made => return made,
                }
            }
        };
        let Some(resizer) = stop.run_until_cancelled(made).await else { return Ok(()) };
        let resizer = resizer?;
        tokio::join!(writer.run(stop.clone()), resizer.run(stop.clone()));
        Ok(())
    }

    fn gaps(&self) -> Vec<Gap> {
        vec![Gap::InTreeVolumes]
    }
}

#[cfg(test)]
mod tests {
    use wharf_reconcile::Backoff;

    use super::*;

    fn options(args: &[&str]) -> Result<ResizerOptions, String> {
        let mut set = FlagSet::new("csi-resizer", "");
        let flags = Flags::register(&mut set);
        let parsed = set.parse(args.iter().copied()).map_err(|error| error.to_string())?;
        let common = flags.common.common(&parsed).map_err(|error| error.to_string())?;
        flags.options(&parsed, &common).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_without_a_value_are_those_of_upstream() {
        let given = options(&[]).unwrap();
        let own = ResizerOptions::new("");
        assert_eq!(format!("{given:?}"), format!("{own:?}"));
    }

    #[test]
    fn flags_are_obeyed() {
        let given = options(&[
            "-workers=100",
            "--handle-volume-inuse-error=false",
            "--extra-modify-metadata",
            "-retry-interval-start=500ms",
            "--retry-interval-max",
            "1m",
            "--resync-period=0s",
            "--feature-gates=VolumeAttributesClass=false,AnnotateFsResize=false,RecoverVolumeExpansionFailure=true",
            "--csiTimeout=15s",
        ])
        .unwrap();
        assert_eq!(given.workers, 100);
        assert!(!given.in_use && given.extra_metadata && !given.modify && !given.annotate);
        let backoff = Backoff { first: Duration::from_millis(500), max: Duration::from_mins(1) };
        assert_eq!((given.backoff, given.resync), (backoff, Duration::ZERO));
        for wrong in ["--workers=0", "--workers=-1"] {
            assert!(options(&[wrong]).is_err(), "{wrong}");
        }
    }
}
