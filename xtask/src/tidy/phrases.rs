//! Phrases that hide the actor or the object of a sentence, with plain replacements. Rejected in
//! comments, messages and documents; tests are exempt.

use super::{SourceFile, text::is_code};

/// Begun with phrases that have no other use. A phrase with an honest use does not belong here.
const PHRASES: &[(&str, &str)] = &[
    ("anew", "again"),
    ("as it should be", "the desired state"),
    ("as they should be", "the desired state"),
    ("another one", "the noun"),
    ("for want of", "without"),
    ("let go", "release, remove or drop"),
    ("lets go", "releases, removes or drops"),
    ("letting go", "releasing, removing or dropping"),
    ("tell of", "report, list or contain"),
    ("tells of", "reports, lists or contains"),
    ("that which", "the noun"),
    ("to be had", "available"),
    ("told of", "notified of"),
    ("whom", "the actor"),
    ("whomever", "the actor"),
];

/// This file contains them.
const OWN: &str = "xtask/src/tidy/phrases.rs";

/// Breaches in `sources`: the first one of each file.
pub(super) fn check(sources: &[SourceFile]) -> Vec<String> {
    let checked = sources.iter().filter(|source| is_checked(&source.path));
    checked.filter_map(phrase).collect()
}

fn is_checked(path: &str) -> bool {
    let is_text = is_code(path) || path.ends_with(".md") || path.starts_with("deploy/");
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    is_text && !is_test && path != OWN
}

fn phrase(source: &SourceFile) -> Option<String> {
    let lines = source.text.lines().take_while(|line| *line != "mod tests {").enumerate();
    let mut found = lines.flat_map(|(number, line)| {
        let line = if is_code(&source.path) { prose(line) } else { line.to_owned() };
        let line = line.to_lowercase();
        let found = PHRASES.iter().find(move |(phrase, _)| has_words(&line, phrase));
        found.map(|(phrase, plain)| {
            let (path, number) = (&source.path, number + 1);
            format!("{path}:{number}: {phrase:?} hides a fact: write {plain}")
        })
    });
    found.next()
}

/// The strings and the comment of a line of code.
fn prose(line: &str) -> String {
    let comment = line.find("//").unwrap_or(line.len());
    let strings: Vec<&str> = line[..comment].split('"').skip(1).step_by(2).collect();
    format!("{} {}", strings.join(" "), &line[comment..])
}

/// Whether `line` contains the whole words of `phrase`.
fn has_words(line: &str, phrase: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(phrase).any(|(at, _)| {
        !line[..at].ends_with(is_word) && !line[at + phrase.len()..].starts_with(is_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(path: &str, text: &str) -> usize {
        check(&[SourceFile { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn plain_words_are_expected() {
        for line in ["/// What the log tells of it.", "//! Whom it asks.", "  warn!(\"let go\");"] {
            assert_eq!(breaches("xtask/src/a.rs", line), 1, "{line}");
        }
        for line in
            ["let go = a();", "fn anew_or_not() {}", "/// Outlet goods.", "/// The log reports it."]
        {
            assert_eq!(breaches("xtask/src/a.rs", line), 0, "{line}");
        }
        assert_eq!(breaches("docs/registration.md", "made anew"), 1);
        assert_eq!(breaches("deploy/a.yaml", "# made anew"), 1);
    }

    #[test]
    fn tests_are_exempt() {
        assert_eq!(breaches("xtask/tests/it/a.rs", "// anew"), 0);
        assert_eq!(breaches("xtask/src/a/tests.rs", "// anew"), 0);
        let tests = "fn a() {}\n#[cfg(test)]\nmod tests {\n    // anew\n}\n";
        assert_eq!(breaches("xtask/src/a.rs", tests), 0);
    }
}
