//! Where ours is deliberately unlike koord-runtime-proxy. docs/differences.md tells users the same.

/// A set of fields, what arrives there from either proxy, and why. In each, `*` stands for any text.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) path: &'static str,
    theirs: &'static str,
    ours: &'static str,
    #[expect(dead_code, reason = "shown when a row is not met")]
    why: &'static str,
}

impl Difference {
    pub(super) fn explains(&self, path: &str, theirs: &str, ours: &str) -> bool {
        matches(self.path, path) && matches(self.theirs, theirs) && matches(self.ours, ours)
    }
}

const fn row(
    path: &'static str,
    theirs: &'static str,
    ours: &'static str,
    why: &'static str,
) -> Difference {
    Difference { path, theirs, ours, why }
}

/// The first that explains a difference counts.
pub(super) const DIFFERENCES: &[Difference] = &[
    row("*: runtime */unknown", "", "kept", "fields that its types do not have are dropped"),
    row("*: runtime */CDI_devices/0/name", "", "*", "the same"),
    row("*: runtime */recursive_read_only", "", "true", "the same"),
    row("*: runtime */userns_options/mode", "", "*", "the same"),
    row("*: runtime */metadata", "", "kept", "request metadata is dropped"),
    row(
        "create failing: runtime */linux",
        "",
        "{}",
        "an empty message is made of absent resources",
    ),
    row("create failing: runtime */linux/resources", "{}", "", "the same"),
    row("create ls without*: runtime */linux/resources", "{}", "", "the same"),
    row("*/oom_score_adj", "", "\"500\"", "an answer that does not mention it sets it to 0"),
    row(
        "create *: hook PreCreateContainer/pod_cgroup_parent",
        "\"/kubepods/*\"",
        "\"/hooked/pod\"",
        "what a hook changed of a pod is not carried to its containers",
    ),
    row("create *: runtime */sandbox_config/labels/hooked", "", "*", "the same"),
    row("create *: runtime */sandbox_config/annotations/note", "*", "\"PreRun*\"", "the same"),
    row(
        "update *: runtime */linux/hugepage_limits/0/*",
        "*",
        "*",
        "limits of huge pages that no hook can change are replaced by those at creation",
    ),
    row("update *failing: hook */hooked", "*", "\"PreCreate*\"", "a failed call is kept"),
    row("update *failing: hook */HOOKED", "*", "\"PreCreate*\"", "the same"),
    row("update after failing: hook */container_resources/*", "*", "*", "the same"),
    row("update after failing: runtime */linux/*", "*", "*", "the same"),
    row("stop failing: hook */container_resources/*", "*", "*", "the same"),
    row("start plain again: hook *", "", "*", "a stop deletes the record"),
    row("stop after failing: hook PostStopContainer/*", "", "*", "so does a failed one"),
    row("stop pod after failing: hook PostStopPodSandbox/*", "", "*", "the same"),
    row("remove ls: hook PostStopContainer/*", "", "*", "who ends by itself is not told of"),
    row("stop pod ls: hook PostStopContainer/*", "", "*", "the same"),
    row("*: hook Post*/outcome", "", "*", "post hooks are not told how the call ended"),
    row(
        "run plain: answer",
        "Unknown: hook server err: *",
        "ResourceExhausted: hook server err: recorder.json at *, PreRunPodSandbox: no more",
        "a hook server's error loses its code",
    ),
];

/// Whether `text` is as `pattern` says.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| matches(rest, &text[at..]))
}

#[test]
fn a_star_is_any_text() {
    for (pattern, text, wanted) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("", "", true),
        ("*", "", true),
        ("a*", "abc", true),
        ("*/b", "a/b/b", true),
        ("a*c*e", "abcde", true),
        ("a*c*e", "abcd", false),
    ] {
        assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
    }
}
