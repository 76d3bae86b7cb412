//! Checks that paths in documents exist.

use super::SourceFile;

/// The beginnings of paths in this repository.
const ROOTS: &[&str] =
    &[".cargo/", ".ci/", "crates/", "deploy/", "docs/", "examples/", "peers/", "xtask/"];

/// Paths in the documents among `sources` that do not exist.
pub(super) fn check(sources: &[SourceFile], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut breaches = Vec::new();
    for document in sources.iter().filter(|source| source.path.ends_with(".md")) {
        for path in paths(document) {
            if !exists(&path) {
                breaches.push(format!("{} names {path}, which is not there", document.path));
            }
        }
    }
    breaches
}

/// Paths from the root in `document`: in backticks, if they begin like ours, and as targets of
/// links.
fn paths(document: &SourceFile) -> Vec<String> {
    let quoted = document.text.split('`').skip(1).step_by(2).filter(|text| is_own(text));
    let quoted = quoted.map(|text| text.trim_end_matches('/').to_owned());
    let linked = document.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    quoted.chain(linked.filter_map(|target| resolve(&document.path, target))).collect()
}

fn is_own(text: &str) -> bool {
    let pattern = |c: char| c.is_whitespace() || "*{}<>$:".contains(c);
    ROOTS.iter().any(|root| text.starts_with(root)) && !text.contains(pattern)
}

/// A link's target, as a path from the root; `None` for links to other sites and within the
/// document.
fn resolve(document: &str, target: &str) -> Option<String> {
    let target = target.split(['#', ' ']).next().filter(|target| !target.is_empty())?;
    if target.contains(':') {
        return None;
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(text: &str) -> Vec<String> {
        let source = SourceFile { path: "docs/node.md".to_owned(), text: text.to_owned() };
        check(&[source], |path| ["docs/plugin.md", "README.md", "crates/uds"].contains(&path))
    }

    #[test]
    fn what_exists_may_be_named() {
        let text = "[a](plugin.md#top) [b](../README.md) `crates/uds/` `crates/*/src` [c](https://a.b/c) \
                    [d](#here) `/var/lib/kubelet` `cargo test`";
        assert_eq!(breaches(text), Vec::<String>::new());
    }

    #[test]
    fn what_is_gone_may_not() {
        assert_eq!(breaches("see `crates/gone/src/lib.rs`").len(), 1);
        assert_eq!(breaches("see [it](gone.md) and [it](../gone.md)").len(), 2);
    }
}
