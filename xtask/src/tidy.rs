//! `cargo xtask tidy`: checks rules of this repository that no compiler checks.

mod dialect;
mod files;
mod levels;
mod links;
mod phrases;
mod text;

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use wharf_testkit::peers;

use crate::shell;

/// A file of the repository: its path from the root, and its text.
pub(crate) struct SourceFile {
    /// The path from the root, with `/` between its parts.
    pub(crate) path: String,
    /// The file's text.
    pub(crate) text: String,
}

/// Checks every rule, and prints all breaches.
pub(crate) fn run() -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(peers::repository()).no_deps().exec()?;
    let sources = sources()?;
    let mut breaches = levels::check(&metadata.packages);
    breaches.extend(links::check(&sources, |path| peers::repository().join(path).exists()));
    breaches.extend(text::check(&sources));
    breaches.extend(files::check(&sources));
    breaches.extend(dialect::check(&sources));
    breaches.extend(phrases::check(&sources));
    for (lines, path) in text::long(&sources) {
        println!("long: {path} has {lines} lines; would two names be clearer?");
    }
    for breach in &breaches {
        println!("tidy: {breach}");
    }
    if !breaches.is_empty() {
        bail!("{} rules broken", breaches.len());
    }
    Ok(())
}

/// The text files that git tracks, or would track.
fn sources() -> Result<Vec<SourceFile>> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let names = shell::quiet(list.current_dir(peers::repository()))?;
    let mut sources = Vec::new();
    for name in names.split_terminator('\0') {
        let path: PathBuf = peers::repository().join(name);
        // A removed file is listed until the removal is committed.
        if path.is_file() {
            let bytes = std::fs::read(&path).with_context(|| name.to_owned())?;
            if let Ok(text) = String::from_utf8(bytes) {
                sources.push(SourceFile { path: name.to_owned(), text });
            }
        }
    }
    Ok(sources)
}
