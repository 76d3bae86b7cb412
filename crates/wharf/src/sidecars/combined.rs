//! `wharf sidecars`: several controllers in one process, with one cache of the objects they watch.

use std::process::ExitCode;

use wharf_cli::{CombinedFlags, CombinedLine, Flag, FlagError, FlagSet, LoggingFlags, Parsed};

use super::{
    Attacher, Provisioner, Resizer, SnapshotController, Snapshotter,
    controller::{ClusterSource, MakeController},
    driver::{DriverSource, NodeFacts},
    flags::{CommonFlags, WHOLE},
    node::{LIVENESS, LivenessFlags, NodeTask, ProcessFlags, REGISTRAR, RegistrarFlags},
    runner::{ControllerSpec, Personality, Plan, start, start_node},
};
use crate::runtime::usage;

const ABOUT: &str = "Runs CSI sidecars in one process: one watch for each kind of object, one connection to the CSI \
                     driver, and a Lease for each controller.\nA flag applies to every controller that has it. With a \
                     controller's name as its prefix, as in --attacher-timeout=1m, it applies to that controller alone.";

/// The flags of everything that can run in one process.
struct Combined {
    flags: CombinedFlags,
    controllers: Flag<Vec<String>>,
    attacher: Attacher,
    provisioner: Provisioner,
    resizer: Resizer,
    snapshotter: Snapshotter,
    snapshot_controller: SnapshotController,
    registrar: RegistrarFlags,
    liveness: LivenessFlags,
}

/// Controllers that serve one driver, the meaning of `*`.
const OF_DRIVER: [&str; 4] = [Attacher::NAME, Provisioner::NAME, Resizer::NAME, Snapshotter::NAME];

/// Names of everything that can run in one process, in the order of joining. A cluster needs one
/// snapshot-controller and not one for each driver, and the last two serve a node: these three run
/// only when they are named.
const NAMES: [&str; 7] = [
    Attacher::NAME,
    Provisioner::NAME,
    Resizer::NAME,
    Snapshotter::NAME,
    SnapshotController::NAME,
    REGISTRAR,
    LIVENESS,
];

pub(super) fn main(name: &str, args: Vec<String>) -> ExitCode {
    let combined = Combined::new(name);
    combined.run(name, args).unwrap_or_else(|error| usage(&error))
}

impl Combined {
    fn new(command: &str) -> Self {
        fn join<P: Personality>(flags: &mut CombinedFlags, command: &str) -> P {
            join_set(flags, command, P::NAME, P::register)
        }
        fn join_set<T>(
            flags: &mut CombinedFlags,
            command: &str,
            name: &'static str,
            register: fn(&mut FlagSet) -> T,
        ) -> T {
            let mut set = FlagSet::new(command, "");
            let registered = register(&mut set);
            flags.join(name, set);
            registered
        }
        let mut own = FlagSet::new(command, ABOUT);
        let controllers = own.string_list(
            "controllers",
            vec!["*".to_owned()],
            format!(
                "Controllers to run: names, or * for {}; -NAME excludes one. Three run only when they are named: \
                 snapshot-controller, of which a cluster needs one, and {REGISTRAR} and {LIVENESS}, which run on each node with \
                 the driver and need no Kubernetes API.",
                OF_DRIVER.join(", ")
            ),
        );
        let mut log = FlagSet::new(command, "");
        LoggingFlags::register(&mut log);
        let mut flags = CombinedFlags::new(own, WHOLE.into_iter().chain(log.names()));
        Self {
            controllers,
            attacher: join(&mut flags, command),
            provisioner: join(&mut flags, command),
            resizer: join(&mut flags, command),
            snapshotter: join(&mut flags, command),
            snapshot_controller: join(&mut flags, command),
            registrar: join_set(&mut flags, command, REGISTRAR, RegistrarFlags::register),
            liveness: join_set(&mut flags, command, LIVENESS, LivenessFlags::register),
            flags,
        }
    }

    fn run(&self, name: &str, args: Vec<String>) -> Result<ExitCode, FlagError> {
        let line = self.flags.read(args)?;
        let chosen = self.chosen(&line)?;
        let parsed = line.parse(&chosen)?;
        let lines: Vec<(&str, &Parsed)> = chosen.iter().copied().zip(&parsed).collect();
        let Some(&(first, process)) = lines.first() else { return Ok(ExitCode::SUCCESS) };
        let node = || self.node_tasks(&lines);
        Ok(match (first, self.common(first)) {
            (_, None) => start_node(name, self.node_process(first), process, node),
            (SnapshotController::NAME, Some(common)) => start(name, common, process, || {
                let spec: ControllerSpec<ClusterSource> = self.snapshot_controller.spec(process)?;
                Ok(Plan { specs: vec![spec], node: node()? })
            }),
            (_, Some(common)) => start(name, common, process, || {
                Ok(Plan { specs: self.specs(&lines)?, node: node()? })
            }),
        })
    }

    fn node_tasks(&self, lines: &[(&str, &Parsed)]) -> Result<Vec<NodeTask>, FlagError> {
        let task = |(name, parsed): &(&str, &Parsed)| match *name {
            REGISTRAR => Some(self.registrar.task(parsed)),
            LIVENESS => Some(self.liveness.task(parsed)),
            _ => None,
        };
        lines.iter().filter_map(task).collect()
    }

    fn node_process(&self, name: &str) -> &ProcessFlags {
        if name == REGISTRAR { &self.registrar.process } else { &self.liveness.process }
    }

    /// The names that `--controllers` selects.
    fn chosen(&self, line: &CombinedLine<'_>) -> Result<Vec<&'static str>, FlagError> {
        let own = line.own();
        let asked: Vec<&str> = own.get(&self.controllers).iter().map(|name| name.trim()).collect();
        for name in asked.iter().filter(|name| **name != "*") {
            if !NAMES.contains(&name.strip_prefix('-').unwrap_or(name)) {
                return Err(own.usage_error(format_args!(
                    "--controllers: unknown name {name:?}, expected * or some of {}",
                    NAMES.join(", ")
                )));
            }
        }
        let is_left_out =
            |name: &str| asked.iter().any(|asked| asked.strip_prefix('-') == Some(name));
        let is_asked = |name: &str| {
            asked.contains(&name) || (asked.contains(&"*") && OF_DRIVER.contains(&name))
        };
        let chosen: Vec<&str> =
            NAMES.into_iter().filter(|name| is_asked(name) && !is_left_out(name)).collect();
        match chosen.is_empty() {
            true => Err(own.usage_error("--controllers excludes every controller")),
            false => Ok(chosen),
        }
    }

    fn specs(
        &self,
        lines: &[(&str, &Parsed)],
    ) -> Result<Vec<ControllerSpec<DriverSource>>, FlagError> {
        let mut specs = Vec::new();
        for (name, parsed) in lines {
            match *name {
                Attacher::NAME => specs.push(self.attacher.spec(parsed)?),
                Provisioner::NAME => specs.push(self.provisioner.spec(parsed)?),
                Resizer::NAME => specs.push(self.resizer.spec(parsed)?),
                Snapshotter::NAME => specs.push(self.snapshotter.spec(parsed)?),
                _ => {}
            }
        }
        if !specs.is_empty() {
            let first = specs.remove(0);
            specs.insert(0, warning_when_made(first, further_warnings(lines)));
        }
        // The controllers share one connection to the driver, which watches the facts of the node
        // that any of them needs.
        let node = NodeFacts {
            place: specs.iter().any(|spec| spec.source.node.place),
            capabilities: specs.iter().any(|spec| spec.source.node.capabilities),
        };
        specs.iter_mut().for_each(|spec| spec.source.node = node);
        let of_cluster = lines.iter().find(|(name, _)| *name == SnapshotController::NAME);
        if let (Some((_, parsed)), Some(first)) = (of_cluster, specs.first()) {
            let driver = first.source.clone();
            let controller = self.snapshot_controller.spec(parsed)?;
            if node.place && controller.common.election.is_none() {
                return Err(parsed.usage_error(
                    "snapshot-controller serves the whole cluster, and --node-deployment would run one on each node: \
                     remove it from --controllers, or set --snapshot-controller-leader-election",
                ));
            }
            specs.push(controller.with_driver(driver));
        }
        Ok(specs)
    }

    /// The flags that all controllers have; `None` for node tasks, which need no Kubernetes API.
    fn common(&self, name: &str) -> Option<&CommonFlags> {
        match name {
            Attacher::NAME => Some(self.attacher.common()),
            Provisioner::NAME => Some(self.provisioner.common()),
            Resizer::NAME => Some(self.resizer.common()),
            Snapshotter::NAME => Some(self.snapshotter.common()),
            SnapshotController::NAME => Some(self.snapshot_controller.common()),
            _ => None,
        }
    }
}

/// Warnings that the command line of the first controller does not give: those of the first are
/// logged when the log is set up.
fn further_warnings(lines: &[(&str, &Parsed)]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut of_first = 0;
    for (index, (_, parsed)) in lines.iter().enumerate() {
        for warning in parsed.warnings() {
            if !all.contains(&warning) {
                all.push(warning);
            }
        }
        if index == 0 {
            of_first = all.len();
        }
    }
    all.split_off(of_first)
}

/// Logs warnings when the controller is made, which is after the log is set up.
fn warning_when_made(
    spec: ControllerSpec<DriverSource>,
    warnings: Vec<String>,
) -> ControllerSpec<DriverSource> {
    let make = spec.controller;
    let controller: MakeController = Box::new(move |registry, queues| {
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        make(registry, queues)
    });
    ControllerSpec { controller, ..spec }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(controllers: &str) -> Result<Vec<&'static str>, String> {
        let combined = Combined::new("wharf sidecars");
        let args = vec![format!("--controllers={controllers}")];
        let line = combined.flags.read(args).map_err(|error| error.to_string())?;
        combined.chosen(&line).map_err(|error| error.to_string())
    }

    #[test]
    fn controllers_are_chosen_by_name() {
        assert_eq!(chosen("*").unwrap(), OF_DRIVER);
        assert_eq!(chosen("*,snapshot-controller").unwrap(), NAMES[..5]);
        assert_eq!(chosen("registrar,liveness").unwrap(), [REGISTRAR, LIVENESS]);
        assert_eq!(chosen("resizer, attacher").unwrap(), ["attacher", "resizer"]);
        assert_eq!(chosen("*,-snapshot-controller").unwrap(), OF_DRIVER);
        assert!(chosen("atacher").unwrap_err().contains("unknown name \"atacher\""));
        assert!(chosen("attacher,-attacher").unwrap_err().contains("excludes every"));
    }

    #[test]
    fn each_gets_its_own_value_where_it_has_one() {
        let combined = Combined::new("wharf sidecars");
        let args = ["--timeout=20s", "--snapshotter-timeout=2m", "--csi-address=/x/csi.sock"];
        let line = combined.flags.read(args.map(str::to_owned).to_vec()).unwrap();
        let controllers = &NAMES[..5];
        let parsed = line.parse(controllers).unwrap();
        let lines: Vec<(&str, &Parsed)> = controllers.iter().copied().zip(&parsed).collect();
        let specs = combined.specs(&lines).unwrap();
        let found: Vec<(&str, u64)> =
            specs.iter().map(|spec| (spec.name, spec.source.timeout.as_secs())).collect();
        let wanted = [20, 20, 20, 120, 20];
        assert_eq!(found, controllers.iter().copied().zip(wanted).collect::<Vec<_>>());
    }
}
