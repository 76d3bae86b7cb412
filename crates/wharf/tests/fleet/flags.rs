//! Flags in the help of Go's sidecars: ours accept each of them, if only to warn that it is not
//! obeyed.

use std::{path::Path, process::Command};

use wharf_testkit::{peers, process};

use crate::{
    api::PATIENCE,
    life::Life,
    program::{Kind, Make, Program},
    sidecar::{Order, link},
    site::Site,
};

/// What a program says, and how it ends.
async fn run(program: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(program);
    for variable in ["NODE_NAME", "NAMESPACE", "POD_NAME", "KUBECONFIG"] {
        command.env_remove(variable);
    }
    let output = process::output(command.args(args), PATIENCE).await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// The flag of a line of help, with a value: `  -name type` of Go's own package, or `  -n, --name
/// type   What for` of pflag. What a flag is for goes on further right.
fn flag(line: &str) -> Option<String> {
    let text = line.trim_start_matches(' ');
    let text = text.split_once(", --").map_or(text, |(_, long)| long);
    let text = text.strip_prefix('-').map_or(text, |text| text.trim_start_matches('-'));
    let mut words = text.split_ascii_whitespace();
    let is_flag = line.len() - line.trim_start().len() <= 6 && line.trim_start().starts_with('-');
    let name = words.next().filter(|_| is_flag)?;
    // One is a number, a text and true.
    let value = if words.next() == Some("duration") { "1s" } else { "1" };
    Some(format!("--{name}={value}"))
}

async fn compare(kind: Kind) {
    let Some(peer) = peers::binary(kind.program()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let ours = link(folder.path(), kind.program());
    let (_, help) = run(&peer, &["--help"]).await;
    let flags: Vec<String> = help.lines().filter_map(flag).collect();
    assert!(flags.iter().any(|flag| flag == "--retry-interval-start=1s"), "{flags:?}");
    let mut strange = Vec::new();
    for flag in &flags {
        // With this it ends before it begins.
        let (code, said) = run(&ours, &["--kubeconfig=/nonexistent", flag]).await;
        let name = flag.trim_start_matches('-').split('=').next().unwrap();
        let is_unknown = ["unknown flag", "not defined"].iter().any(|it| said.contains(it));
        let is_named = said.contains(name);
        if is_unknown || code == Some(2) && !is_named || code.is_none() {
            strange.push(format!("{flag}: {code:?}: {said}"));
        }
    }
    assert!(strange.is_empty(), "of {} flags: {strange:#?}", flags.len());
}

#[tokio::test]
async fn our_provisioner_knows_the_flags_of_the_peer() {
    compare(Kind::Provisioner).await;
}

#[tokio::test]
async fn our_attacher_knows_the_flags_of_the_peer() {
    compare(Kind::Attacher).await;
}

#[tokio::test]
async fn our_resizer_knows_the_flags_of_the_peer() {
    compare(Kind::Resizer).await;
}

#[tokio::test]
async fn our_snapshotter_knows_the_flags_of_the_peer() {
    compare(Kind::Snapshotter).await;
}

#[tokio::test]
async fn our_snapshot_controller_knows_the_flags_of_the_peer() {
    compare(Kind::SnapshotController).await;
}

#[tokio::test]
async fn the_attacher_logs_as_much_of_an_answer_as_it_is_told() {
    let Some(site) = Site::new("log-length").await else { return };
    let more = ["-v=5", "--max-grpc-log-length=20"];
    let order = site.order(Program::One(Kind::Attacher, Make::Ours), None);
    let mut attacher = Order { more: &more, ..order }.start().unwrap();
    let mut provisioner = site.start(Kind::Provisioner, Make::Ours).unwrap();
    let life = Life::up_to(&site, Kind::Attacher, "data").await;
    attacher.said("ControllerPublishVolumeRequest {", 1).await;
    attacher.said("response=\"ControllerPublishVol …\"", 1).await;
    life.detach().await;
    life.end().await;
    attacher.stop().await;
    provisioner.stop().await;
}
