//! `cargo xtask bench NAME`: builds the measured programs and runs `wharf-bench`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result, bail};
use wharf_testkit::peers as cache;

use crate::{peers, shell};

/// The target of the static binary: without it, the flags would also apply to build scripts and
/// macros.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A static binary; relocations are packed, since every process reads all of them when it starts.
const SHIP_FLAGS: &str = "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs";

/// Options of the task.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The measurement's name; without it, all names are listed
    name: Option<String>,
    /// A folder with the binaries to compare with, under their usual names
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Few repetitions: to try the bench, not for its figures
    #[arg(long)]
    quick: bool,
    /// Options of this measurement, such as `-- --only claims`; `-- --help` lists them
    #[arg(last = true, value_name = "OPTIONS")]
    own: Vec<String>,
}

struct Bench {
    name: &'static str,
    about: &'static str,
    /// Whether it measures the static binary.
    binary: bool,
    /// The folders of `peers/` that it compares with.
    peers: &'static [&'static str],
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "build",
        about: "the first build of the README's first command",
        binary: false,
        peers: &[],
    },
    Bench {
        name: "driver",
        about: "the local-storage driver, compared with its disk",
        binary: true,
        peers: &[],
    },
    Bench {
        name: "proxy",
        about: "the runtime proxy, compared with a direct connection and koord-runtime-proxy",
        binary: true,
        peers: &["cri-client", "koord-runtime-proxy"],
    },
    Bench {
        name: "registration",
        about: "the plugin manager, compared with a real kubelet, and the registrar",
        binary: true,
        peers: &["etcd", "kubernetes"],
    },
    Bench {
        name: "sidecars",
        about: "the CSI sidecars in one process, compared with a bare client and the Go sidecars",
        binary: true,
        peers: &["etcd", "kubernetes", "csi-provisioner", "csi-resizer", "csi-snapshotter"],
    },
];

/// Runs the measurement that `options` names. The exit code is 0 if every target was met.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let Some(name) = &options.name else {
        for bench in BENCHES {
            println!("{:<16} {}", bench.name, bench.about);
        }
        return Ok(ExitCode::SUCCESS);
    };
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        bail!("there is no bench {name:?}: `cargo xtask bench` lists them");
    };
    // Without names, `build` would build all of them.
    if !bench.peers.is_empty() && std::env::var_os(cache::SKIP_PEERS).is_none() {
        let names: Vec<_> = bench.peers.iter().map(|&name| name.to_owned()).collect();
        peers::build(&names)?;
    }
    let mut measure = shell::cargo();
    measure.args(["run", "--quiet", "--release", "--package", "wharf-bench", "--", name]);
    if bench.binary {
        measure.arg("--binary").arg(static_binary()?);
    }
    if options.quick {
        measure.arg("--quick");
    }
    if let Some(folder) = &options.peers {
        let folder =
            folder.canonicalize().with_context(|| format!("--peers {}", folder.display()))?;
        measure.arg("--peers").arg(&folder).env(cache::PEERS, &folder);
    }
    measure.args(&options.own);
    let status = measure.status().context("cargo run --package wharf-bench")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the binary that ships.
fn static_binary() -> Result<PathBuf> {
    let mut build = shell::cargo();
    build.args(["build", "--profile", "ship", "--package", "wharf", "--target", TARGET]);
    build.env("RUSTFLAGS", SHIP_FLAGS);
    shell::run(&mut build)?;
    Ok(shell::target()?.join(TARGET).join("ship/wharf"))
}
