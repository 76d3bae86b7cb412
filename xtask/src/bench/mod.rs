//! `cargo xtask bench NAME`: one entry per measurement.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// What to measure, and against what.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The measurement's name; without it, all names are listed
    name: Option<String>,
    /// A folder with the binaries to compare with, under their usual names
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
}

/// A measurement.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn(&Options) -> Result<()>,
}

/// Every measurement there is.
const BENCHES: &[Bench] = &[];

/// Runs the measurement that `options` names.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Some(name) = &options.name else {
        for bench in BENCHES {
            println!("{:<16} {}", bench.name, bench.about);
        }
        return Ok(());
    };
    if let Some(folder) = options.peers.as_ref().filter(|folder| !folder.is_dir()) {
        bail!("--peers: {} is not a folder", folder.display());
    }
    match BENCHES.iter().find(|bench| bench.name == name) {
        Some(bench) => (bench.run)(options),
        None => bail!("there is no bench {name:?}: `cargo xtask bench` lists them"),
    }
}
