//! `wharf demo` as a newcomer runs it.

use std::process::Command;

#[test]
fn the_demo_shows_a_whole_life_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_wharf"))
        .arg("demo")
        .env("TMPDIR", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(!text.contains('\x1b'), "colours in a pipe: {text}");
    let steps: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once("s    ").map(|(_, rest)| rest))
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    let life = ["seen", "validated", "registered"];
    let end = ["gone", "deregistered"];
    let expected: Vec<&str> = life
        .into_iter()
        .chain(["unreachable"])
        .chain(end)
        .chain(life)
        .chain(["connected"])
        .chain(end)
        .collect();
    assert_eq!(steps, expected, "{text}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
