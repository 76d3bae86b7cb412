//! Rules that show in a file's text.

use super::Source;

const LONG: usize = 400;
const UNSAFE: &str = "crates/mount/";

/// Hosts and paths of one place, which would not work in another: registries are used through their clients. In two
/// halves each, since this file is checked too.
const LOCAL: &[(&str, &str)] = &[
    ("static.", "crates.io"),
    ("index.", "crates.io"),
    ("proxy.", "golang.org"),
    ("sum.", "golang.org"),
    ("registry.", "npmjs.org"),
    ("pypi.", "org"),
    ("pythonhosted.", "org"),
    ("deb.", "debian.org"),
    ("/ro", "ot/"),
    ("/wo", "rk/"),
];

/// Breaches in `sources`.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .flat_map(|source| [lints(source), unsafe_code(source), local(source), log_field(source)])
        .flatten()
        .collect()
}

/// Hand-written files that are longer than they should be, longest first.
pub(super) fn long(sources: &[Source]) -> Vec<(usize, &str)> {
    let written =
        sources.iter().filter(|source| is_code(&source.path) || source.path.ends_with(".proto"));
    let mut long: Vec<_> =
        written.map(|source| (source.text.lines().count(), source.path.as_str())).collect();
    long.retain(|(lines, _)| *lines > LONG);
    long.sort_by(|a, b| b.cmp(a));
    long
}

/// A crate without the workspace's lints is checked by none.
fn lints(source: &Source) -> Option<String> {
    let manifest = source.path.strip_suffix("Cargo.toml").filter(|folder| !folder.is_empty())?;
    let mut lines = source.text.lines().skip_while(|line| line.trim() != "[lints]").skip(1);
    let inherited = lines.next().is_some_and(|line| line.replace(' ', "") == "workspace=true");
    let own = manifest == UNSAFE && source.text.contains("[lints.");
    (!inherited && !own).then(|| format!("{}: expected [lints] workspace = true", source.path))
}

fn unsafe_code(source: &Source) -> Option<String> {
    if !is_code(&source.path) || source.path.starts_with(UNSAFE) {
        return None;
    }
    let line = source.text.lines().position(|line| {
        let code = line.split("//").next().unwrap_or_default();
        [" {", " fn ", " impl ", " extern "]
            .iter()
            .any(|after| code.contains(&format!("{}{after}", "unsafe")))
    })?;
    Some(format!("{}:{}: unsafe code belongs in {UNSAFE}", source.path, line + 1))
}

fn local(source: &Source) -> Option<String> {
    if source.path == "Cargo.lock" || source.path.ends_with("go.sum") {
        return None;
    }
    let found = |line: &str| {
        LOCAL.iter().map(|(a, b)| format!("{a}{b}")).find(|word| line.contains(word.as_str()))
    };
    let (line, word) = source
        .text
        .lines()
        .enumerate()
        .find_map(|(number, line)| Some((number + 1, found(line)?)))?;
    Some(format!("{}:{line}: {word} is of one machine or one network", source.path))
}

/// Errors have one name in the log, so that one search finds them.
fn log_field(source: &Source) -> Option<String> {
    let old = [" ", "("].map(|before| format!("{before}err{}", " = "));
    let old = old.iter().flat_map(|old| ["%", "?"].map(|sigil| format!("{old}{sigil}")));
    let old: Vec<String> = old.collect();
    let is_old = |line: &str| old.iter().any(|old| line.contains(old.as_str()));
    let line = source.text.lines().position(is_old).filter(|_| is_code(&source.path))?;
    Some(format!("{}:{}: expected error as the field of a log line", source.path, line + 1))
}

fn is_code(path: &str) -> bool {
    path.ends_with(".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_manifest_takes_the_workspace_lints() {
        assert_eq!(lints(&source("crates/a/Cargo.toml", "[lints]\nworkspace = true\n")), None);
        assert_eq!(lints(&source("Cargo.toml", "[workspace]\n")), None);
        assert!(lints(&source("crates/a/Cargo.toml", "[package]\nname = \"a\"\n")).is_some());
    }

    #[test]
    fn unsafe_code_has_one_place() {
        let code = format!("fn a() {{\n    {} {{ b() }}\n}}\n", "unsafe");
        assert_eq!(unsafe_code(&source("crates/mount/src/lib.rs", &code)), None);
        assert_eq!(unsafe_code(&source("crates/a/src/lib.rs", "// no unsafe { } here\n")), None);
        let breach = unsafe_code(&source("crates/a/src/lib.rs", &code)).unwrap();
        assert!(breach.contains("lib.rs:2"), "{breach}");
    }

    #[test]
    fn nothing_names_a_machine() {
        let text = format!("a\nget it from {}{}\n", "proxy.", "golang.org");
        assert!(local(&source("docs/a.md", &text)).unwrap().contains("docs/a.md:2"));
        assert_eq!(local(&source("docs/a.md", "golang.org/x/sys")), None);
    }

    #[test]
    fn errors_have_one_name_in_the_log() {
        let old = format!("warn!(socket, err{}%error, \"failed\");\n", " = ");
        assert_eq!(check(&[source("crates/a/src/lib.rs", &old)]).len(), 1);
        let new = "warn!(socket, %error, \"failed\");\n";
        assert!(check(&[source("crates/a/src/lib.rs", new)]).is_empty());
    }

    #[test]
    fn long_files_are_listed() {
        let sources = [source("a.rs", &"\n".repeat(401)), source("b.rs", &"\n".repeat(400))];
        assert_eq!(long(&sources), [(401, "a.rs")]);
    }
}
