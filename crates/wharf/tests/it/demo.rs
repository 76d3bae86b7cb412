//! `wharf demo` as a newcomer runs it.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use wharf_testkit::skip;

use crate::support::WHARF;

const COMES: [&str; 3] = ["seen", "validated", "registered"];
const GOES: [&str; 2] = ["gone", "deregistered"];
const BROUGHT: [&str; 3] = ["attached", "staged", "published"];

#[test]
fn the_demo_shows_both_lives_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(WHARF).arg("demo").env("TMPDIR", folder.path()).output().unwrap();
    let text = told(&output);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains('\x1b'), "colours in a pipe: {text}");
    let volume =
        [&["created"][..], &BROUGHT, &["written", "snapshot", "restored"], &BROUGHT, &["verified"]];
    let volume =
        volume.concat().into_iter().chain(["expanded", "grown", "verified"]).chain(["deleted"; 3]);
    let volume: Vec<&str> = COMES.into_iter().chain(volume).chain(GOES).collect();
    let volume = if geteuid().is_root() { volume } else { Vec::new() };
    assert_eq!(steps(&text), [registration(), volume].concat(), "{text}");
    nothing_is_left(&folder);
}

#[test]
fn without_the_right_to_mount_the_volume_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = match geteuid().is_root() {
        false => Command::new(WHARF),
        true => {
            let mut setpriv = Command::new("setpriv");
            setpriv.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", WHARF]);
            setpriv
        }
    };
    let output = demo.arg("demo").env("TMPDIR", folder.path()).output().unwrap();
    let text = told(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(steps(&text), registration(), "{text}");
    assert_eq!(
        text.matches("the life of a volume is left out: mounting needs root").count(),
        1,
        "{text}"
    );
    nothing_is_left(&folder);
}

#[test]
fn a_signal_undoes_everything() {
    if !geteuid().is_root() {
        return skip::record(None, "mounts need root");
    }
    for (number, step) in
        ["registered", "staged", "published", "restored", "grown"].iter().enumerate()
    {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = Command::new(WHARF);
        demo.arg("demo").env("TMPDIR", folder.path()).stdout(Stdio::piped());
        let mut demo = demo.spawn().unwrap();
        let text =
            stop_after(&mut demo, step, if number % 2 == 0 { Signal::INT } else { Signal::TERM });
        assert_eq!(demo.wait().unwrap().code(), Some(1), "{text}");
        assert!(text.ends_with("failed: stopped by a signal\n"), "{text}");
        nothing_is_left(&folder);
    }
}

/// Signals the demo as soon as it shows a step; all that it said.
fn stop_after(demo: &mut Child, step: &str, signal: Signal) -> String {
    let pid = Pid::from_child(demo);
    let mut told = BufReader::new(demo.stdout.take().unwrap());
    let mut text = String::new();
    while steps(&text).last() != Some(&step) {
        assert_ne!(told.read_line(&mut text).unwrap(), 0, "{step} was not shown: {text}");
    }
    kill_process(pid, signal).unwrap();
    while told.read_line(&mut text).unwrap() > 0 {}
    text
}

/// The steps of a plugin's life.
fn registration() -> Vec<&'static str> {
    let life = COMES.into_iter().chain(["unreachable"]).chain(GOES);
    life.chain(COMES).chain(["connected"]).chain(GOES).collect()
}

/// What was seen, in order.
fn steps(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.split_once("s    ").map(|(_, rest)| rest))
        .filter_map(|rest| rest.split_whitespace().next())
        .collect()
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn nothing_is_left(folder: &TempDir) {
    let folder = folder.path().canonicalize().unwrap();
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let name = folder.to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(name), "{mounts}");
    for device in std::fs::read_dir("/sys/block").unwrap() {
        let image = device.unwrap().path().join("loop/backing_file");
        let image = std::fs::read_to_string(&image).unwrap_or_default();
        assert!(!Path::new(&image).starts_with(&folder), "{image}");
    }
}
