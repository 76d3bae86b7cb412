//! Flags and feature gates compared with those of upstream's newest releases in
//! `upstream_flags.txt`.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use wharf_testkit::process::Process;

use crate::support::{Bench, PATIENCE, run_as};

const DATA: &str = include_str!("upstream_flags.txt");
const DOCS: &str = include_str!("../../../../docs/sidecars.md");
const DIFFERENCES: &str = include_str!("../../../../docs/differences.md");
const NOWHERE: &str = "--kubeconfig=/nonexistent/kubeconfig";

/// What a flag takes, and its default; of a gate its stage and its default.
type Facts = BTreeMap<String, (String, String)>;

/// A program as `upstream_flags.txt` has it.
#[derive(Default)]
struct Program {
    flags: Facts,
    gates: Facts,
    inherited: Facts,
    next: Facts,
    earlier: BTreeSet<String>,
    ours: BTreeSet<String>,
}

fn programs() -> BTreeMap<&'static str, Program> {
    let mut programs: BTreeMap<&str, Program> = BTreeMap::new();
    let mut current = "";
    for line in DATA.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let (name, facts) = (words[1], &words[2..]);
        if words[0] == "program" {
            current = name;
            continue;
        }
        let program = programs.entry(current).or_default();
        let of = |index: usize| facts.get(index).copied().unwrap_or_default().to_owned();
        let facts = match words[0] {
            "flag" => &mut program.flags,
            "gate" => &mut program.gates,
            "inherited" => &mut program.inherited,
            "next" => &mut program.next,
            "earlier" => {
                program.earlier.insert(name.to_owned());
                continue;
            }
            "ours" => {
                program.ours.insert(name.to_owned());
                continue;
            }
            other => panic!("upstream_flags.txt: {other:?} in {line:?}"),
        };
        let twice = facts.insert(name.to_owned(), (of(0), of(1)));
        assert!(twice.is_none(), "upstream_flags.txt: {current} has {name} twice");
    }
    assert_eq!(programs.len(), 7);
    programs
}

/// Flags and gates as our help has them.
fn help(program: &str) -> (Facts, Facts) {
    let (output, _) = run_as(program, &["--help"], &[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let gates = text.lines().filter_map(|line| gate(line.trim())).collect();
    let mut flags = Facts::new();
    // A flag stands alone on its line, and what is said of it below, further right.
    for part in text.split("\n  -").skip(1) {
        let (flag, about) = part.split_once('\n').unwrap();
        let flag = flag.trim_start_matches('-');
        let (name, kind) = flag.split_once(' ').unwrap_or((flag, ""));
        let about = about.split("\n\n").next().unwrap();
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        let default = about.strip_suffix(')').and_then(|about| about.rsplit_once("(default "));
        let default = default.map(|(_, default)| default.to_owned()).unwrap_or_default();
        flags.insert(name.to_owned(), (kind_of(kind).to_owned(), default));
    }
    (flags, gates)
}

/// Our word for what a flag takes in that of `upstream_flags.txt`.
fn kind_of(kind: &str) -> &str {
    match kind {
        "" => "bool",
        "gate=bool,..." => "gates",
        "key=value,..." => "labels",
        "Level" => "level",
        "pattern=N,..." => "modules",
        "quantity" => "size",
        plain => plain,
    }
}

/// A line such as `Topology=true (GA)`.
fn gate(line: &str) -> Option<(String, (String, String))> {
    let (name, rest) = line.split_once('=')?;
    let (default, stage) = rest.strip_suffix(')')?.split_once(" (")?;
    matches!(default, "true" | "false")
        .then(|| (name.to_owned(), (stage.to_owned(), default.to_owned())))
}

/// A value that no flag of this kind has by default.
fn other_value(kind: &str) -> &'static str {
    match kind {
        "bool" => "true",
        "duration" => "7s",
        "string" => "x",
        _ => "7",
    }
}

/// The log of a program that starts with these arguments.
fn start(program: &str, args: &[&str], variables: &[(&str, &str)]) -> String {
    let (output, said) = run_as(program, &[args, &[NOWHERE]].concat(), variables);
    let is_started = said.contains("kubeconfig /nonexistent/kubeconfig: cannot be used");
    assert!(output.status.code() == Some(1) && is_started, "{program} {args:?}: {said}");
    said
}

/// Programs that need an API server and so end where there is none.
fn is_controller(program: &str) -> bool {
    !matches!(program, "csi-node-driver-registrar" | "livenessprobe")
}

fn warnings<'a>(said: &'a str, about: &str) -> Vec<&'a str> {
    said.lines().filter(|line| line.starts_with('W') && line.contains(about)).collect()
}

#[test]
fn flags_have_upstreams_names_types_and_defaults() {
    for (name, upstream) in programs() {
        let (ours, _) = help(name);
        for (flag, facts) in &upstream.flags {
            let found = ours.get(flag).unwrap_or_else(|| panic!("{name} has no --{flag}"));
            assert_eq!(found, facts, "{name} --{flag}: ours, upstream's");
        }
        let more: BTreeSet<String> =
            ours.keys().filter(|flag| !upstream.flags.contains_key(*flag)).cloned().collect();
        let known: BTreeSet<String> = upstream.earlier.union(&upstream.ours).cloned().collect();
        assert_eq!(more, known, "{name}: flags that upstream's release does not have");
    }
}

#[test]
fn gates_have_upstreams_names_stages_and_defaults() {
    for (name, mut upstream) in programs() {
        let (_, ours) = help(name);
        for (gate, facts) in upstream.next {
            let named = format!("`{gate}`");
            assert!(DIFFERENCES.contains(&named), "docs/differences.md does not tell of {gate}");
            let released = upstream.gates.insert(gate.clone(), facts.clone());
            assert!(released.is_some_and(|it| it != facts), "{gate} is released as it is here");
        }
        assert_eq!(ours, upstream.gates, "{name}: ours, upstream's");
    }
}

#[test]
fn gates_that_upstream_inherits_are_accepted_with_a_warning() {
    for (name, upstream) in programs().into_iter().filter(|(name, _)| is_controller(name)) {
        assert!(!upstream.inherited.is_empty());
        let opposite = |default: &str| if default == "true" { "false" } else { "true" };
        let gates: Vec<String> = upstream
            .inherited
            .iter()
            .map(|(gate, (_, default))| format!("{gate}={}", opposite(default)))
            .collect();
        let said = start(name, &[&format!("--feature-gates={}", gates.join(","))], &[]);
        for gate in &gates {
            let about = format!("--feature-gates: {gate} is not served: ");
            assert_eq!(warnings(&said, &about).len(), 1, "{name} {gate}: {said}");
        }
        start(name, &["--feature-gates=AllAlpha=true,AllBeta=true"], &[]);
    }
}

#[test]
fn flags_of_earlier_releases_are_accepted_with_a_warning() {
    for (name, upstream) in programs().into_iter().filter(|(name, _)| is_controller(name)) {
        let (ours, _) = help(name);
        for flag in &upstream.earlier {
            let given = format!("--{flag}={}", other_value(&ours[flag].0));
            let said = start(name, &[&given], &[]);
            // Some of them change what a line of the log begins with.
            let found = said.lines().filter(|line| line.contains(&format!("--{flag} "))).count();
            assert_eq!(found, 1, "{name} {given}: {said}");
        }
    }
}

#[test]
fn flags_and_gates_that_no_upstream_has_are_errors() {
    for (name, upstream) in programs() {
        let mut wrong = vec!["--no-such-flag"];
        if upstream.flags.contains_key("feature-gates") {
            wrong.extend(["--feature-gates=NoSuchGate=true", "--feature-gates=Topologie=false"]);
        } else {
            wrong.push("--feature-gates=AllAlpha=true");
        }
        for arg in wrong {
            let (output, said) = run_as(name, &[arg, NOWHERE], &[]);
            assert_eq!(output.status.code(), Some(2), "{name} {arg}: {said}");
        }
    }
}

/// A row of the table of docs/sidecars.md: flags, each with what it has to stand beside, and
/// programs.
fn unserved() -> Vec<(Vec<String>, Vec<String>)> {
    let (_, section) = DOCS.split_once("\n## Flags that are not served\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let quoted = |cell: &str| -> Vec<String> {
        cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let programs = match cells[2].trim() {
            "all" => programs().into_keys().map(str::to_owned).collect(),
            some => quoted(some),
        };
        (quoted(cells[1]), programs)
    })
    .collect()
}

#[test]
fn each_flag_that_is_not_served_gives_one_warning_and_starts() {
    let node = [("NODE_NAME", "n"), ("NAMESPACE", "n"), ("POD_NAME", "p")];
    let known = programs();
    let rows = unserved();
    assert!(rows.len() > 10, "{rows:?}");
    for (flags, programs) in rows {
        for program in programs.iter().filter(|program| is_controller(program)) {
            let upstream = &known[program.as_str()];
            let (ours, _) = help(program);
            let check = |asked: &str, beside: &[&str]| {
                let said = start(program, &[&[asked], beside].concat(), &node);
                let name = asked.split('=').next().unwrap();
                let about = if name == "--feature-gates" { asked } else { name };
                let about = about.trim_start_matches("--feature-gates=");
                // Immediate binding is on by default, and so warned of beside any flag of nodes.
                let found: Vec<&str> = warnings(&said, "is not served: ")
                    .into_iter()
                    .filter(|line| {
                        line.contains(&format!("{about} ")) || line.contains(&format!("{about}="))
                    })
                    .collect();
                assert_eq!(found.len(), 1, "{program} {asked}: {said}");
                assert_eq!(warnings(&said, about).len(), 1, "{program} {asked}: {said}");
            };
            if flags[0] == "--feature-gates" {
                for gate in &flags[1..] {
                    check(&format!("--feature-gates={gate}=true"), &[]);
                }
                continue;
            }
            let name = flags[0].trim_start_matches('-');
            let asked = match name.contains('=') {
                true => flags[0].clone(),
                false => format!("--{name}={}", other_value(&ours[name].0)),
            };
            let beside: Vec<&str> = flags[1..].iter().map(String::as_str).collect();
            check(&asked, &beside);
            let is_known = name.split('=').next().is_some_and(|flag| {
                upstream.flags.contains_key(flag) || upstream.earlier.contains(flag)
            });
            assert!(is_known, "{program} {name}: no upstream has it");
        }
    }
}

#[tokio::test]
async fn programs_without_an_api_server_warn_as_well() {
    let rows = unserved();
    for (program, args) in [
        ("csi-node-driver-registrar", &["--kubelet-registration-path=/nonexistent/csi.sock"][..]),
        ("livenessprobe", &[]),
    ] {
        let bench = Bench::new();
        let of_program =
            rows.iter().filter(|(_, programs)| programs.iter().any(|it| it == program));
        for (flags, _) in of_program {
            let mut command = Command::new(bench.called(program));
            command.arg("--csi-address=/nonexistent/csi.sock").args(args).arg(&flags[0]);
            let mut process = Process::start(program, &command, bench.folder.path()).unwrap();
            let wanted = format!("{} is not served: ", flags[0]);
            let warned = process.line(PATIENCE, &wanted, |it| it.contains(&wanted).then_some(()));
            warned.await.unwrap();
        }
    }
}

#[test]
fn what_upstream_does_not_do_either_gives_no_warning() {
    let node = [("NODE_NAME", "n")];
    for (program, args) in [
        ("csi-snapshotter", &["--feature-gates=CSIVolumeGroupSnapshot=false"][..]),
        ("csi-snapshotter", &["--enable-volume-group-snapshots=false"]),
        ("snapshot-controller", &[]),
        ("csi-provisioner", &["--node-deployment-immediate-binding=true"]),
        ("csi-provisioner", &["--node-deployment", "--node-deployment-immediate-binding=false"]),
        ("csi-provisioner", &["--feature-gates=CrossNamespaceVolumeDataSource=false"]),
        ("csi-resizer", &["--feature-gates=RecoverVolumeExpansionFailure=true"]),
        ("csi-attacher", &["--feature-gates=MutableCSINodeAllocatableCount=true"]),
    ] {
        let said = start(program, args, &node);
        assert_eq!(warnings(&said, ""), [""; 0], "{program} {args:?}");
    }
}
