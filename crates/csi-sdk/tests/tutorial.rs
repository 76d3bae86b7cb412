//! Builds, tests and runs the files of docs/sdk.md in an empty folder.

#![allow(clippy::unwrap_used, missing_docs)]

use std::{path::Path, process::Command, time::Duration};

use wharf_testkit::{peers::repository, process::Process, sanity::Sanity};

const PATIENCE: Duration = Duration::from_secs(20);
/// The dependency line of the document, which this test replaces by the clone under test.
const ORIGIN: &str = r#"git = "https://github.com/wharf-dev/wharf""#;

#[tokio::test]
async fn a_driver_from_an_empty_folder() {
    // Use the target folder of this build, which has most dependencies already.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let project = target.join("tutorial");
    write_files(&project);
    cargo(&project, target, &["test", "--quiet"]);

    let smallest = start(&target.join("debug/smallest")).await;
    assert!(smallest.0.stop(PATIENCE).await.unwrap().success());

    let (driver, folder) = start(&target.join("debug/shelf")).await;
    let suite = Sanity::new(folder.path().join("csi.sock"));
    if let Some(score) = suite.run(folder.path()).await.unwrap() {
        assert_eq!(score.failures, Vec::<String>::new());
        assert!(score.passed > 30, "{score:?}");
    }
    assert!(driver.stop(PATIENCE).await.unwrap().success());
}

/// Writes the document's files: fenced blocks whose info string has a file name after the language.
fn write_files(project: &Path) {
    let text = std::fs::read_to_string(repository().join("docs/sdk.md")).unwrap();
    let mut count = 0;
    for block in text.split("\n```").skip(1).step_by(2) {
        let (head, body) = block.split_once('\n').unwrap();
        let Some((_, name)) = head.split_once(' ') else { continue };
        let path = project.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let body = if name == "Cargo.toml" { from_clone(body) } else { body.to_owned() };
        // Keep the time of an unchanged file, so that cargo does not rebuild it.
        if std::fs::read_to_string(&path).ok().as_deref() != Some(&format!("{body}\n")) {
            std::fs::write(path, format!("{body}\n")).unwrap();
        }
        count += 1;
    }
    assert_eq!(count, 9, "files in docs/sdk.md");
    // Pin the versions of this workspace.
    std::fs::copy(repository().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
}

fn from_clone(manifest: &str) -> String {
    let line = |line: &str| match line.split_once(" = ") {
        Some((name, _)) if line.contains(ORIGIN) => {
            let folder = repository().join("crates").join(name.trim_start_matches("wharf-"));
            line.replace(ORIGIN, &format!("path = {:?}", folder.to_str().unwrap()))
        }
        _ => line.to_owned(),
    };
    let manifest: Vec<_> = manifest.lines().map(line).collect();
    assert!(!manifest.concat().contains("github.com"), "{manifest:?}");
    // cargo's output folder is inside the clone: without a workspace of its own, the package would
    // belong to the clone's workspace.
    manifest.join("\n") + "\n[workspace]\n"
}

fn cargo(project: &Path, target: &Path, args: &[&str]) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(args).args(["--offline"]).current_dir(project).env("CARGO_TARGET_DIR", target);
    let output = cargo.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "cargo {args:?}: {told}");
}

/// Starts a driver of the document, with its socket in a temporary folder.
async fn start(binary: &Path) -> (Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let mut command = Command::new(binary);
    command.env("CSI_ENDPOINT", &socket).env("SHELF_FOLDER", folder.path());
    let mut driver = Process::start("driver", &command, folder.path()).unwrap();
    let listening = || std::future::ready(socket.exists().then_some(()));
    driver.ready(PATIENCE, "its socket", listening).await.unwrap();
    (driver, folder)
}
