//! The Debian packages of the machine, before and after.

use std::{collections::BTreeSet, process::Command};

use anyhow::Result;

use crate::shell;

/// Every installed package, as `name version`.
pub(super) fn installed() -> Result<BTreeSet<String>> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${binary:Package} ${Version} ${db:Status-Status}\n"]);
    let lines = shell::quiet(&mut query)?;
    let present = lines.lines().filter_map(|line| line.strip_suffix(" installed"));
    Ok(present.map(str::to_owned).collect())
}

/// Packages of `after` that are not in `before`.
pub(super) fn added(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    after.difference(before).cloned().collect()
}
