//! Checks that one module opens and makes the files of pools and of the driver's state folder.

use super::SourceFile;

const DRIVER: &str = "crates/driver/src/";
const MODULE: &str = "crates/driver/src/files.rs";

/// Modules that open other files by path: devices, targets of pods, and files of the kernel.
const OTHERS: &[&str] =
    &["node/cgroup.rs", "node/filesystem.rs", "node/health.rs", "node/target.rs"];

/// Functions that open or make a file at a path, following symlinks.
const FUNCTIONS: &[&str] = &[
    "File::create",
    "File::open",
    "File::options",
    "OpenOptions::",
    "fs::copy(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::write(",
    "openat(",
];

/// Breaches in `sources`: code of the driver, except tests, that opens a file without that module.
pub(super) fn check(sources: &[SourceFile]) -> Vec<String> {
    let code = sources.iter().filter(|source| {
        let name = source.path.strip_prefix(DRIVER).unwrap_or_default();
        let is_test = name.ends_with("tests.rs");
        name.ends_with(".rs") && source.path != MODULE && !is_test && !OTHERS.contains(&name)
    });
    code.flat_map(|source| {
        let lines = source.text.lines().enumerate();
        let lines = lines.take_while(|(_, line)| !line.contains("#[cfg(test)]"));
        lines.filter_map(|(number, line)| {
            let code = line.split("//").next().unwrap_or_default();
            let function = FUNCTIONS.iter().find(|function| code.contains(**function))?;
            let path = &source.path;
            Some(format!("{path}:{}: {function}: use {MODULE}, which follows no link", number + 1))
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, text: &str) -> usize {
        check(&[SourceFile { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn files_of_pools_are_opened_in_one_place() {
        let text = "fn a() {\n    File::open(b);\n    fs::write(b, c);\n}\n";
        assert_eq!(breaches("crates/driver/src/a.rs", text), 2);
        for path in [MODULE, "crates/driver/src/node/target.rs", "crates/mount/src/a.rs"] {
            assert_eq!(breaches(path, text), 0, "{path}");
        }
        let tests = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert_eq!(breaches("crates/driver/src/a.rs", &tests), 0);
        assert_eq!(breaches("crates/driver/src/a.rs", "// File::open follows links\n"), 0);
    }
}
