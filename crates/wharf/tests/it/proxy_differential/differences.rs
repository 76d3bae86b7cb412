//! Deliberate differences from koord-runtime-proxy, each a row of docs/differences.md.

use super::lane::Server;

/// A set of fields, what arrives there from either proxy, and why. In each, `*` stands for any
/// text.
#[derive(Debug)]
pub(super) struct Difference {
    /// The number of the defect that ours does without, in the survey of koord-runtime-proxy.
    defect: &'static str,
    path: &'static str,
    theirs: &'static str,
    ours: &'static str,
    /// What docs/differences.md says of it.
    told: &'static str,
    /// The only hook server with which it is met, if there is only one.
    with: Option<Server>,
}

impl Difference {
    pub(super) fn explains(&self, server: Server, path: &str, theirs: &str, ours: &str) -> bool {
        self.with.is_none_or(|only| only == server)
            && matches(self.path, path)
            && matches(self.theirs, theirs)
            && matches(self.ours, ours)
    }

    const fn with(self, server: Server) -> Difference {
        Difference { with: Some(server), ..self }
    }
}

const fn row(
    defect: &'static str,
    path: &'static str,
    theirs: &'static str,
    ours: &'static str,
    told: &'static str,
) -> Difference {
    Difference { defect, path, theirs, ours, told, with: None }
}

const DROPPED: &str = "drops every newer field";
const CARRIED: &str = "that PreRunPodSandbox set reach the sandbox only";
const NO_RESOURCES: &str = "a container without resources gets an empty message of them";
const KEPT: &str = "an update that the runtime refused stays in the record";
const FORGOTTEN: &str = "forgets a container or pod when it is stopped, even if that failed";
const BY_ITSELF: &str = "PostStopContainer is not called for containers that end by themselves";
const HUGE_PAGES: &str = "carries the huge page limits of the container's creation";
const OUTCOME: &str = "they get the outcome";
const NO_WORD: &str = "an update with an empty answer of a hook server";

const RUN: &str = "\"PreRunPodSandbox\"";
const CREATE: &str = "\"PreCreateContainer\"";
const START: &str = "\"PreStartContainer\"";
const UPDATE: &str = "\"PreUpdateContainerResources\"";
const TWO_MB: &str = "\"2000000\"";

/// The first that explains a difference counts.
pub(super) const DIFFERENCES: &[Difference] = &[
    row("D6", "*: runtime */unknown", "", "kept", DROPPED),
    row("D6", "*: runtime */CDI_devices/0/name", "", "\"vendor.example/gpu=0\"", DROPPED),
    row("D6", "*: runtime */recursive_read_only", "", "true", DROPPED),
    row("D6", "*: runtime */userns_options/mode", "", "\"NODE\"", DROPPED),
    row("D25", "*: runtime */metadata", "", "kept", "request metadata is dropped"),
    row("D3", "create failing: runtime */linux", "", "{}", NO_RESOURCES),
    row("D3", "create failing: runtime */linux/resources", "{}", "", NO_RESOURCES),
    row("D3", "create ls without*: runtime */linux/resources", "{}", "", NO_RESOURCES),
    row("D15", "*/oom_score_adj", "", "\"500\"", "an answer without `oom_score_adj` sets it to 0"),
    row(
        "D18",
        "create *: hook PreCreateContainer/pod_cgroup_parent",
        "\"/kubepods/*\"",
        "\"/hooked/pod\"",
        CARRIED,
    ),
    row("D18", "create *: runtime */sandbox_config/labels/hooked", "", RUN, CARRIED),
    row("D18", "create *: runtime */sandbox_config/annotations/note", "", RUN, CARRIED),
    row(
        "D18",
        "create plain: runtime */sandbox_config/annotations/note",
        "\"from kubelet\"",
        RUN,
        CARRIED,
    ),
    row("D17", "update *: runtime */hugepage_limits/0/limit", TWO_MB, "\"1000000000\"", HUGE_PAGES),
    row("D17", "update *: runtime */hugepage_limits/0/limit", TWO_MB, "", HUGE_PAGES),
    row("D17", "update *: runtime */hugepage_limits/0/page_size", "\"2MB\"", "\"1GB\"", HUGE_PAGES),
    row("D17", "update *: runtime */hugepage_limits/0/page_size", "\"2MB\"", "", HUGE_PAGES),
    row("D19", "update failing: hook */hooked", START, CREATE, KEPT),
    row("D19", "update failing: hook */HOOKED", START, CREATE, KEPT),
    row("D19", "update after failing: hook */hooked", UPDATE, CREATE, KEPT),
    row("D19", "update after failing: hook */HOOKED", UPDATE, CREATE, KEPT),
    row("D19", "*failing: */cpu_quota", "\"-1\"", "\"40000\"", KEPT),
    row("D19", "*failing: */cpu_quota", "\"30000\"", "\"40000\"", KEPT).with(Server::Terse),
    row("D19", "*failing: */cpu_shares", "\"300\"", "\"204\"", KEPT),
    row("D19", "*failing: */cpu_shares", "\"300\"", "\"1001\"", KEPT).with(Server::Terse),
    row("D19", "*failing: */cpuset_cpus", "\"0\"", "\"0-1\"", KEPT),
    row("D19", "*failing: */cpuset_cpus", "", "\"1\"", KEPT).with(Server::Terse),
    row("D19", "*failing: */cpuset_mems", "\"1\"", "\"0\"", KEPT),
    row("D19", "*failing: */memory_limit_in_bytes", "\"3000000\"", "\"1000000\"", KEPT),
    row("D19", "*failing: */memory_swap_limit_in_bytes", "\"3500000\"", "\"1500000\"", KEPT),
    row("D19", "*failing: */unified/cpu.weight", "\"50\"", "", KEPT),
    row("D19", "*failing: */unified/memory.low", "\"2\"", "\"1\"", KEPT),
    row("D10", "start plain again: hook *", "", "*", FORGOTTEN),
    row("D10", "stop after failing: hook PostStopContainer/*", "", "*", FORGOTTEN),
    row("D10", "stop pod after failing: hook PostStopPodSandbox/*", "", "*", FORGOTTEN),
    row("D9", "remove ls: hook PostStopContainer/*", "", "*", BY_ITSELF),
    row("D9", "stop pod ls: hook PostStopContainer/*", "", "*", BY_ITSELF),
    row("D11", "*failing: hook Post*/outcome", "", "9", OUTCOME),
    row("D11", "*: hook Post*/outcome", "", "0", OUTCOME),
    // That ours are the request's own is seen by its bytes.
    row("D19", "update *: runtime */linux/*", "*", "*", NO_WORD).with(Server::Empty),
    row("D19", "update *: runtime */annotations/*", "*", "*", NO_WORD).with(Server::Empty),
    row(
        "D26",
        "run plain: answer",
        "Unknown: hook server err: *",
        "Unknown: hook server err: recorder.json at *, PreRunPodSandbox: ResourceExhausted: no more",
        "a hook server's error is Unknown to the caller",
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

/// A difference that users are not told of is a bug.
#[test]
fn users_are_told_of_each() {
    let page = include_str!("../../../../../docs/differences.md");
    let (_, page) = page.split_once("## CRI proxy").unwrap();
    for Difference { defect, path, told, .. } in DIFFERENCES {
        let rows: Vec<_> = page.lines().filter(|line| line.contains(told)).collect();
        assert_eq!(rows.len(), 1, "{defect} {path}: {told:?} is in {rows:#?}");
        let number = defect.strip_prefix('D').and_then(|number| number.parse().ok());
        assert!(number.is_some_and(|number: u8| (1..=33).contains(&number)), "{path}: {defect}");
    }
}
