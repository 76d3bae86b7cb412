//! Records tests that cannot run on this machine, by name, so that a skip is not counted as a pass.

use std::{io::Write, path::Path};

/// The file to which skips are appended; `cargo xtask test` sets it.
pub const SKIPS: &str = "WHARF_SKIPS";

/// A test that returned early: one line of the skip file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// The test binary: test names are unique within a binary only.
    pub binary: String,
    /// The test's path, as libtest prints it.
    pub test: String,
    /// The missing prerequisite.
    pub reason: String,
}

/// Records that the test `name` is skipped; `None` is the test of the current thread, which libtest
/// names after it.
///
/// # Panics
///
/// If the skip file cannot be written: the skip would not be counted.
pub fn record(name: Option<&str>, reason: &str) {
    let thread = std::thread::current();
    let skip = Skip {
        binary: std::env::current_exe()
            .ok()
            .and_then(|exe| Some(exe.file_stem()?.to_string_lossy().into_owned()))
            .unwrap_or_default(),
        test: name.or(thread.name()).unwrap_or("unknown").to_owned(),
        reason: reason.to_owned(),
    };
    eprintln!("skipped {}: {}", skip.test, skip.reason);
    if let Some(file) = std::env::var_os(SKIPS) {
        append(Path::new(&file), &skip)
            .unwrap_or_else(|error| panic!("{SKIPS}={}: {error}", file.display()));
    }
}

/// The skips recorded in `file`, each test once; empty if the file does not exist.
pub fn read(file: &Path) -> std::io::Result<Vec<Skip>> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let mut skips: Vec<Skip> = text.lines().filter_map(parse).collect();
    skips.sort();
    skips.dedup_by(|a, b| (&a.binary, &a.test) == (&b.binary, &b.test));
    Ok(skips)
}

fn append(file: &Path, skip: &Skip) -> std::io::Result<()> {
    let line = format!("{}\t{}\t{}\n", skip.binary, skip.test, skip.reason);
    let mut file = std::fs::File::options().create(true).append(true).open(file)?;
    // A single write, so that lines of parallel tests do not mix.
    file.write_all(line.as_bytes())
}

fn parse(line: &str) -> Option<Skip> {
    let mut fields = line.splitn(3, '\t').map(str::to_owned);
    Some(Skip { binary: fields.next()?, test: fields.next()?, reason: fields.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_counted_once_per_binary() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        let skip = |binary: &str, reason: &str| Skip {
            binary: binary.into(),
            test: "mounts::a_test".into(),
            reason: reason.into(),
        };
        for skip in [skip("a", "no etcd"), skip("b", "no etcd"), skip("a", "no\tkubelet")] {
            append(&file, &skip).unwrap();
        }
        let binaries: Vec<_> = read(&file).unwrap().into_iter().map(|skip| skip.binary).collect();
        assert_eq!(binaries, ["a", "b"]);
        assert_eq!(read(&folder.path().join("none")).unwrap(), []);
    }
}
