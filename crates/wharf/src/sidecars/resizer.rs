//! `wharf resizer`, also as csi-resizer.

use std::{process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use kube::Client;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use wharf_cli::{FeatureGates, Flag, FlagError, FlagSet, Gate, Parsed, Stage};
use wharf_cluster::{EventRecorder, Events};
use wharf_facts::lease;
use wharf_reconcile::Backoff;
use wharf_sidecars::{
    Caches,
    resizer::{Resizer, ResizerOptions},
};

use super::{
    controller::Controller,
    driver::Connected,
    flags::{Common, CommonFlags, DriverFlag, RELEASE_ON_EXIT, Retired, retire},
    shell::{self, Sidecar},
};

const ANNOTATE_FS_RESIZE: Gate = Gate::new("AnnotateFsResize", Stage::Beta, true);
const ATTRIBUTES_CLASS: Gate = Gate::new("VolumeAttributesClass", Stage::Ga, true);
/// What came before it is not here.
const RECOVER: Gate = Gate::new("RecoverVolumeExpansionFailure", Stage::Ga, true).locked();

/// Between two questions to a driver that does not answer.
const PAUSE: Duration = Duration::from_secs(1);

struct Flags {
    common: CommonFlags,
    driver: DriverFlag,
    master: Flag<String>,
    timeout: Flag<Duration>,
    workers: Flag<i64>,
    resync_period: Flag<Duration>,
    retry_interval_start: Flag<Duration>,
    retry_interval_max: Flag<Duration>,
    in_use: Flag<bool>,
    extra_metadata: Flag<bool>,
    node_deployment: Flag<bool>,
}

impl Flags {
    fn register(set: &mut FlagSet) -> Self {
        let gates =
            FeatureGates::new(&[ANNOTATE_FS_RESIZE, ATTRIBUTES_CLASS, RECOVER, RELEASE_ON_EXIT]);
        let flags = Self {
            common: CommonFlags::register(set, gates),
            driver: DriverFlag::register(set),
            master: set.string("master", "", "Not supported: the kubeconfig names the API server."),
            timeout: set.duration(
                "timeout",
                Duration::from_secs(10),
                "How long one call to the CSI driver may take.",
            ),
            workers: set.int(
                "workers",
                10,
                "How many volumes are grown at once, and how many modified.",
            ),
            resync_period: set.duration(
                "resync-period",
                Duration::from_mins(10),
                "How often every claim is looked at again, changed or not. 0: never.",
            ),
            retry_interval_start: set.duration(
                "retry-interval-start",
                Duration::from_secs(1),
                "Pause after a first failure. It doubles with each further one.",
            ),
            retry_interval_max: set.duration(
                "retry-interval-max",
                Duration::from_mins(5),
                "The longest pause after a failure, and the one after what the CSI driver calls infeasible.",
            ),
            in_use: set.bool(
                "handle-volume-inuse-error",
                true,
                "Watch pods, so that a volume that does not grow in use is left alone while a pod uses it.",
            ),
            extra_metadata: set.bool(
                "extra-modify-metadata",
                false,
                "Tell the CSI driver the names of claim and volume when it modifies one.",
            ),
            node_deployment: set.bool(
                "node-deployment",
                false,
                "Serve only volumes of the node named by NODE_NAME, for drivers that run on each node.",
            ),
        };
        retire(set, &[("csiTimeout", Retired::Time, "--timeout bounds calls to the CSI driver")]);
        flags
    }

    fn plan(&self, parsed: &Parsed, common: Common) -> Result<Sidecar, FlagError> {
        let mut controller = Claims(self.options(parsed)?);
        if parsed.get(&self.timeout).is_zero() {
            return Err(parsed.usage_error("--timeout must be longer than 0s"));
        }
        if !parsed.get(&self.master).is_empty() {
            return Err(parsed.usage_error(
                "--master is not supported: name the API server in a file for --kubeconfig",
            ));
        }
        Ok(Sidecar {
            common,
            socket: self.driver.socket(parsed)?,
            timeout: *parsed.get(&self.timeout),
            lease: lease::resizer,
            controller: Box::new(move |_, queues| {
                controller.0.queues = Some(queues.clone());
                Arc::new(controller)
            }),
        })
    }

    /// The options for a driver whose name is not known yet.
    fn options(&self, parsed: &Parsed) -> Result<ResizerOptions, FlagError> {
        let workers = usize::try_from(*parsed.get(&self.workers)).ok();
        let workers = workers
            .filter(|workers| *workers > 0)
            .ok_or_else(|| parsed.usage_error("--workers must be greater than 0"))?;
        let node = match std::env::var("NODE_NAME") {
            _ if !*parsed.get(&self.node_deployment) => None,
            Ok(name) if !name.is_empty() => Some(name),
            _ => {
                return Err(parsed.usage_error(
                    "--node-deployment needs the node's name in the variable NODE_NAME",
                ));
            }
        };
        let gates = parsed.get(&self.common.gates);
        Ok(ResizerOptions {
            driver: String::new(),
            node,
            workers,
            backoff: Backoff {
                first: *parsed.get(&self.retry_interval_start),
                max: *parsed.get(&self.retry_interval_max),
            },
            resync: *parsed.get(&self.resync_period),
            in_use: *parsed.get(&self.in_use),
            annotate: gates.enabled(&ANNOTATE_FS_RESIZE),
            modify: gates.enabled(&ATTRIBUTES_CLASS),
            extra_metadata: *parsed.get(&self.extra_metadata),
            queues: None,
        })
    }
}

/// The resizer for whichever driver is there.
struct Claims(ResizerOptions);

#[async_trait]
impl Controller for Claims {
    async fn run(
        &self,
        client: Client,
        driver: Connected,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let caches = Caches::of(&driver.name);
        let component = format!("external-resizer {}", driver.name);
        let (events, writer) = Events::new(EventRecorder::new(client.clone(), component, ""));
        let options = ResizerOptions { driver: driver.name, ..self.0.clone() };
        let made = async {
            loop {
                let (options, driver, events) =
                    (options.clone(), driver.driver.clone(), events.clone());
                match Resizer::new(options, client.clone(), driver, caches.clone(), events).await {
                    Err(error) if error.may_pass() => {
                        warn!(err = %error, "CSI driver does not say what it can do");
                        sleep(PAUSE).await;
                    }
                    made => return made,
                }
            }
        };
        let Some(resizer) = stop.run_until_cancelled(made).await else { return Ok(()) };
        let resizer = resizer?;
        tokio::join!(
            caches.run(&client, &stop),
            writer.run(stop.clone()),
            resizer.run(stop.clone())
        );
        Ok(())
    }
}

pub(crate) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let about =
        "Grows and modifies volumes: has the CSI driver bring them to what their claims ask for.";
    let mut set = FlagSet::new(name, about);
    let flags = Flags::register(&mut set);
    shell::main(name, &set, &flags.common, args, |parsed, common| flags.plan(parsed, common))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<ResizerOptions, String> {
        let mut set = FlagSet::new("csi-resizer", "");
        let flags = Flags::register(&mut set);
        let parsed = set.parse(args.iter().copied()).map_err(|error| error.to_string())?;
        flags.options(&parsed).map_err(|error| error.to_string())
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
        for wrong in
            ["--workers=0", "--workers=-1", "--feature-gates=RecoverVolumeExpansionFailure=false"]
        {
            assert!(options(&[wrong]).is_err(), "{wrong}");
        }
    }
}
