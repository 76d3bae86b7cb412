//! wharf: the Kubernetes node-plugin and storage plane in one binary.
//!
//! The name in `argv[0]` selects the program: as `csi-node-driver-registrar`, `livenessprobe`,
//! `csi-attacher`, `csi-provisioner`, `csi-resizer`, `csi-snapshotter`, `snapshot-controller` or
//! `koord-runtime-proxy` it takes their flags and behaves like them. As `wharf` it has subcommands.

mod access;
mod crds;
mod csi;
mod demo;
mod driver;
mod follow;
mod hooks;
mod liveness;
mod personality;
mod plugins;
mod proxy;
mod registrar;
mod runtime;
mod sidecars;
mod status;
mod text;
mod unserved;

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{Parser, Subcommand};
use personality::Personality;

/// The Kubernetes node-plugin and storage plane in one binary.
#[derive(Parser)]
#[command(name = "wharf", version, max_term_width = 100)]
struct Wharf {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Attaches volumes to nodes; takes external-attacher's flags
    #[command(disable_help_flag = true)]
    Attacher(Upstream),
    Crds(crds::Crds),
    Csi(Box<csi::Csi>),
    Demo(demo::Demo),
    Driver(Box<driver::Driver>),
    /// Runs a hook server, which the CRI proxy calls about pods and containers
    #[command(subcommand)]
    Hooks(Box<hooks::Hooks>),
    /// Lists, watches or manages the plugins of a node
    #[command(subcommand)]
    Plugins(plugins::Plugins),
    /// Creates volumes for claims and deletes released ones; takes external-provisioner's flags
    #[command(disable_help_flag = true)]
    Provisioner(Upstream),
    Proxy(Box<proxy::Proxy>),
    /// Registers a CSI driver with the kubelet; takes node-driver-registrar's flags
    #[command(disable_help_flag = true)]
    Registrar(Upstream),
    /// Grows and modifies volumes; takes external-resizer's flags
    #[command(disable_help_flag = true)]
    Resizer(Upstream),
    /// Serves the health of a CSI driver over HTTP; takes livenessprobe's flags
    #[command(disable_help_flag = true)]
    Liveness(Upstream),
    /// Runs CSI sidecars in one process; takes the flags of each. `sidecars settle` removes the
    /// provisioner's finalizers from claims
    #[command(disable_help_flag = true)]
    Sidecars(Upstream),
    Status(status::Status),
    Why(status::Why),
    /// Takes and deletes snapshots; takes csi-snapshotter's flags
    #[command(disable_help_flag = true)]
    Snapshotter(Upstream),
    /// Binds VolumeSnapshots to their contents; takes snapshot-controller's flags
    #[command(disable_help_flag = true)]
    SnapshotController(Upstream),
}

/// Flags of a Go program, which the parser of `wharf-cli` reads.
#[derive(clap::Args)]
struct Upstream {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    flags: Vec<OsString>,
}

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(personality) = Personality::of(&name) {
        return personality.run(&name, args.collect());
    }
    match Wharf::parse().command {
        Command::Attacher(Upstream { flags }) => Personality::Attacher.run("wharf attacher", flags),
        Command::Crds(crds) => crds.run(),
        Command::Csi(csi) => csi.run(),
        Command::Demo(demo) => demo.run(),
        Command::Driver(driver) => driver.run(),
        Command::Hooks(hooks) => hooks.run(),
        Command::Plugins(plugins) => plugins.run(),
        Command::Provisioner(Upstream { flags }) => {
            Personality::Provisioner.run("wharf provisioner", flags)
        }
        Command::Proxy(proxy) => proxy.run(),
        Command::Registrar(Upstream { flags }) => {
            Personality::Registrar.run("wharf registrar", flags)
        }
        Command::Resizer(Upstream { flags }) => Personality::Resizer.run("wharf resizer", flags),
        Command::Liveness(Upstream { flags }) => Personality::Liveness.run("wharf liveness", flags),
        Command::Sidecars(Upstream { flags }) => Personality::Sidecars.run("wharf sidecars", flags),
        Command::Status(status) => status.run(),
        Command::Why(why) => why.run(),
        Command::Snapshotter(Upstream { flags }) => {
            Personality::Snapshotter.run("wharf snapshotter", flags)
        }
        Command::SnapshotController(Upstream { flags }) => {
            Personality::SnapshotController.run("wharf snapshot-controller", flags)
        }
    }
}
