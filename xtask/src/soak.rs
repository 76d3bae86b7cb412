//! `cargo xtask soak NAME`: kills a program at random moments for a chosen time.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::ValueEnum;

use crate::{packages, shell};

/// Options of the task.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The program to kill
    name: Name,
    /// How long to run, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Seed of all random choices, from the output of a failed run; random by default
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
