//! Checks the dialect of the code: module files, places of tests, imports, `Self`, width of
//! comments. Stable rustfmt can do none of these: grouping imports and wrapping comments are
//! unstable options.

use std::collections::BTreeSet;

use super::{SourceFile, text::is_code};

/// The width of a comment, in columns: rustfmt's `max_width`.
const WIDTH: usize = 100;
/// The longest inline module of tests, in lines.
const INLINE_TESTS: usize = 125;

/// Breaches in the code among `sources`.
pub(super) fn check(sources: &[SourceFile]) -> Vec<String> {
    let code = sources.iter().filter(|source| is_code(&source.path));
    code.flat_map(|source| {
        let rules = [module_file, test_file, inline_tests, wide_comment, split_import, own_name];
        rules.map(|rule| rule(source))
    })
    .flatten()
    .collect()
}

fn module_file(source: &SourceFile) -> Option<String> {
    let folder = source.path.strip_suffix("/mod.rs")?;
    Some(format!("{}: expected {folder}.rs", source.path))
}

fn test_file(source: &SourceFile) -> Option<String> {
    let stem = source.path.strip_suffix("_tests.rs").or(source.path.strip_suffix("_test.rs"))?;
    let unit = source.path.contains("/src/");
    unit.then(|| format!("{}: expected {stem}/tests.rs", source.path))
}

fn inline_tests(source: &SourceFile) -> Option<String> {
    let tests = source.text.lines().skip_while(|line| *line != "mod tests {").count();
    let stem = source.path.trim_end_matches(".rs");
    (tests > INLINE_TESTS).then(|| {
        format!("{}: {tests} lines of inline tests: move them to {stem}/tests.rs", source.path)
    })
}

/// Rows of tables in doc comments cannot be wrapped.
fn wide_comment(source: &SourceFile) -> Option<String> {
    let is_wide = |line: &str| {
        let comment = line.trim_start();
        let is_row = comment.trim_start_matches(['/', '!']).starts_with(" |");
        comment.starts_with("//") && !is_row && line.chars().count() > WIDTH
    };
    let line = source.text.lines().position(is_wide)? + 1;
    Some(format!("{}:{line}: comments are wrapped at {WIDTH} columns", source.path))
}

/// A block of imports has one `use` for each crate, with the rest nested.
fn split_import(source: &SourceFile) -> Option<String> {
    let (mut roots, mut open, mut attribute) = (BTreeSet::new(), false, false);
    for (number, line) in source.text.lines().enumerate() {
        let code = line.trim_start();
        if open {
            open = !code.contains(';');
        } else if let Some(path) = code.strip_prefix("use ").filter(|_| !attribute) {
            open = !code.contains(';');
            let end = path.find([':', ';', ' ']).unwrap_or(path.len());
            if !roots.insert((line.len() - code.len(), &path[..end])) {
                let (path, root, number) = (&source.path, &path[..end], number + 1);
                return Some(format!("{path}:{number}: nest this in the first `use {root}::`"));
            }
        } else if !code.is_empty() && !code.starts_with("use ") {
            roots.clear();
        }
        attribute = code.starts_with("#[");
    }
    None
}

/// A constructor of `Name` says `Self`.
fn own_name(source: &SourceFile) -> Option<String> {
    let mut name = None;
    for (number, line) in source.text.lines().enumerate() {
        if let Some(subject) = line.strip_prefix("impl") {
            let subject = subject.split(" for ").last().unwrap_or_default().trim_end_matches(" {");
            let subject = subject.rsplit(' ').next().unwrap_or_default();
            let is_plain = subject.chars().all(|c| c.is_alphanumeric() || c == '_');
            name = Some(subject).filter(|_| is_plain && line.ends_with('{'));
        } else if line.starts_with('}') {
            name = None;
        }
        let Some(name) = name else { continue };
        let signature = line.split_once(") -> ").filter(|(head, _)| !head.contains("self"));
        let is_own = |(_, returned): (&str, &str)| {
            let parts = returned.split(['<', '>', ',', ' ', '(', ')', ';']);
            parts.into_iter().any(|part| part == name)
        };
        if signature.is_some_and(is_own) {
            return Some(format!("{}:{}: expected Self for {name}", source.path, number + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, text: &str) -> usize {
        check(&[SourceFile { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn modules_and_their_tests_have_one_place() {
        for path in ["xtask/src/a/mod.rs", "xtask/src/a_tests.rs", "xtask/src/a_test.rs"] {
            assert_eq!(breaches(path, ""), 1, "{path}");
        }
        for path in ["xtask/src/a.rs", "xtask/src/a/tests.rs", "xtask/tests/it/a_test.rs"] {
            assert_eq!(breaches(path, ""), 0, "{path}");
        }
        let tests = |lines| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(lines));
        assert_eq!(breaches("xtask/src/a.rs", &tests(INLINE_TESTS - 2)), 0);
        assert_eq!(breaches("xtask/src/a.rs", &tests(INLINE_TESTS - 1)), 1);
    }

    #[test]
    fn comments_are_wrapped() {
        let comment = |width: usize| format!("    //{}\n", "ä".repeat(width - 6));
        assert_eq!(breaches("xtask/src/a.rs", &comment(100)), 0);
        assert_eq!(breaches("xtask/src/a.rs", &comment(101)), 1);
        let row = format!("//! | {} |\n", "a".repeat(200));
        assert_eq!(breaches("xtask/src/a.rs", &row), 0);
    }

    #[test]
    fn imports_are_nested_by_crate() {
        let split = "use std::fmt;\n\nuse tokio::sync::{\n    mpsc,\n};\nuse std::io;\n";
        assert_eq!(breaches("xtask/src/a.rs", split), 1);
        let nested = "use std::{fmt, io};\n\nuse super::a;\n#[cfg(test)]\nuse super::b;\n\n\
                      pub use std::a;\nfn a() {}\nmod tests {\n    use std::fmt;\n}\n";
        assert_eq!(breaches("xtask/src/a.rs", nested), 0);
    }

    #[test]
    fn a_type_calls_itself_self() {
        for (signature, expected) in [
            ("fn new() -> Name {", 1),
            ("fn open() -> Result<Option<Name>> {", 1),
            (") -> Name;", 1),
            ("fn new() -> Self {", 0),
            ("fn shown(&self) -> Name {", 0),
            ("fn other() -> Names {", 0),
        ] {
            let text = format!("impl Trait<A> for Name {{\n    {signature}\n}}\n");
            assert_eq!(breaches("xtask/src/a.rs", &text), expected, "{signature}");
        }
        assert_eq!(breaches("xtask/src/a.rs", "impl Name {\n}\nfn new() -> Name {\n}\n"), 0);
    }
}
