//! `cargo xtask soak NAME`: a test of random kills, for as long as one likes.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::ValueEnum;

use crate::{packages, shell};

/// What to run, and for how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The program whose kills are to be survived
    name: Name,
    /// How long it runs
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Number that decides all choices, as a failure printed it; a new one by default
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// `wharf driver` on two pools
    Driver,
}

/// Runs the test until its time is over, or until it fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    packages::install()?;
    let Name::Driver = options.name;
    let seconds_since_1970 = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let seed = options.seed.unwrap_or(seconds_since_1970);
    let mut test = shell::cargo();
    test.args(["test", "-p", "wharf", "--test", "driver", "--", "--nocapture", "--exact"]);
    test.arg("soak::lives_on_two_pools_survive_kills_at_random_moments");
    test.env("WHARF_SOAK_SECONDS", options.seconds.to_string());
    test.env("WHARF_SOAK_SEED", seed.to_string());
    shell::run(&mut test)
}
