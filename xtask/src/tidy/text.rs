//! Rules about a file's text.

use super::SourceFile;

const LONG: usize = 400;
const UNSAFE: &str = "crates/mount/";

/// Hosts and paths of one machine or network. Each is split in two, since this file is checked,
/// too.
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
pub(super) fn check(sources: &[SourceFile]) -> Vec<String> {
    sources
        .iter()
        .flat_map(|source| {
            [lints, unsafe_code, local, log_field, log_message].map(|rule| rule(source))
        })
        .flatten()
        .collect()
}

/// Hand-written files above the length limit, longest first.
pub(super) fn long(sources: &[SourceFile]) -> Vec<(usize, &str)> {
    let written =
        sources.iter().filter(|source| is_code(&source.path) || source.path.ends_with(".proto"));
    let mut long: Vec<_> =
        written.map(|source| (source.text.lines().count(), source.path.as_str())).collect();
    long.retain(|(lines, _)| *lines > LONG);
    long.sort_by(|a, b| b.cmp(a));
    long
}

/// Every crate inherits the workspace's lints.
fn lints(source: &SourceFile) -> Option<String> {
    let manifest = source.path.strip_suffix("Cargo.toml").filter(|folder| !folder.is_empty())?;
    let mut lines = source.text.lines().skip_while(|line| line.trim() != "[lints]").skip(1);
    let inherited = lines.next().is_some_and(|line| line.replace(' ', "") == "workspace=true");
    let own = manifest == UNSAFE && source.text.contains("[lints.");
    (!inherited && !own).then(|| format!("{}: expected [lints] workspace = true", source.path))
}

fn unsafe_code(source: &SourceFile) -> Option<String> {
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

fn local(source: &SourceFile) -> Option<String> {
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

/// Errors have the same field name in every log line, so that one search finds them.
fn log_field(source: &SourceFile) -> Option<String> {
    let old = [" ", "("].map(|before| format!("{before}err{}", " = "));
    let old = old.iter().flat_map(|old| ["%", "?"].map(|sigil| format!("{old}{sigil}")));
    let old: Vec<String> = old.collect();
    let is_old = |line: &str| old.iter().any(|old| line.contains(old.as_str()));
    let line = source.text.lines().position(is_old).filter(|_| is_code(&source.path))?;
    Some(format!("{}:{}: expected error as the field of a log line", source.path, line + 1))
}

/// A field of this name replaces the text of the log line.
fn log_message(source: &SourceFile) -> Option<String> {
    const LEVELS: [&str; 6] = ["trace", "debug", "info", "warn", "error", "event"];
    let is_log = |before: &str| LEVELS.iter().any(|level| before.ends_with(level));
    let calls = source.text.match_indices("!(").filter(|(at, _)| is_log(&source.text[..*at]));
    let mut messages = calls.filter(|(at, open)| {
        fields(&source.text[at + open.len()..]).iter().any(|field| {
            let name = field.split('=').next().unwrap_or_default();
            name.trim().trim_start_matches(['%', '?']) == "message"
        })
    });
    let (at, _) = messages.next().filter(|_| is_code(&source.path))?;
    let line = source.text[..at].lines().count();
    Some(format!("{}:{line}: a log field named message hides the text of the line", source.path))
}

/// The arguments of a call, without strings; `call` begins after the opening parenthesis.
fn fields(call: &str) -> Vec<String> {
    let (mut fields, mut depth, mut chars) = (vec![String::new()], 0, call.chars());
    while let Some(c) = chars.next() {
        match c {
            '"' => loop {
                match chars.next() {
                    None | Some('"') => break,
                    Some('\\') => drop(chars.next()),
                    Some(_) => {}
                }
            },
            ')' | ']' | '}' if depth == 0 => break,
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => fields.push(String::new()),
            c if depth == 0 => fields.last_mut().expect("there is a first").push(c),
            _ => {}
        }
    }
    fields
}

pub(super) fn is_code(path: &str) -> bool {
    path.ends_with(".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
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
    fn no_field_hides_the_text_of_a_log_line() {
        for field in ["message", "%message", "message = text(a, b)", "?message"] {
            let breach =
                format!("fn a() {{\n    {}!(\n a, {field},\n \"text, {{b}}\")\n}}\n", "warn");
            assert_eq!(check(&[source("crates/a/src/lib.rs", &breach)]).len(), 1, "{field}");
        }
        let fine = format!(
            "{}!(error = of(b, message), \"of, message, {{message}}\"); f(message, a)",
            "warn"
        );
        assert!(check(&[source("crates/a/src/lib.rs", &fine)]).is_empty());
    }

    #[test]
    fn long_files_are_listed() {
        let sources = [source("a.rs", &"\n".repeat(401)), source("b.rs", &"\n".repeat(400))];
        assert_eq!(long(&sources), [(401, "a.rs")]);
    }
}
