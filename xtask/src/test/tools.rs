//! Checks by tools that are not part of cargo.

use anyhow::Result;
use wharf_testkit::peers;

use crate::shell;

const DENY: &str = "0.20.2";

/// Checks licences, duplicate and banned crates, and sources with cargo-deny, by `deny.toml`.
/// Advisories would need a download, so they are not checked.
pub(super) fn deny() -> Result<()> {
    let root = peers::cache().join("tools");
    let binary = match shell::find("cargo-deny") {
        Some(installed) => installed,
        None => root.join("bin/cargo-deny"),
    };
    if !binary.is_file() {
        println!("deny: cargo-deny {DENY} is being built into {}", root.display());
        let mut install = shell::cargo();
        install.args(["install", "--quiet", "--locked", "--version", DENY, "--root"]);
        shell::run(install.arg(&root).arg("cargo-deny"))?;
    }
    let mut check = shell::command(&binary.to_string_lossy());
    check.args([
        "--log-level",
        "error",
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]);
    shell::run(&mut check)
}
