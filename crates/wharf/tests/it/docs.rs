//! The commands of the README and the docs, run as they stand there.

use std::{path::Path, process::Command, time::Duration};

use rustix::process::geteuid;
use wharf_testkit::{peers::repository, process::Process, skip};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a reader's shell would run through cargo is already built; anything else that the docs ask of cargo is a mistake.
const PRELUDE: &str = r#"
set -euo pipefail
cargo() {
    case "$*" in
        "run --release -- "*) shift 3; "$WHARF" "$@" ;;
        "run --release -p example-plugin -- "*) shift 5; "$EXAMPLE" "$@" ;;
        "xtask test") ;; # runs this very test
        *) echo "the docs run 'cargo $*', which this test does not know" >&2; return 1 ;;
    esac
}
"#;

#[tokio::test]
async fn the_commands_of_the_docs_work() {
    let root = repository();
    let mut files = vec![root.join("README.md")];
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    files.extend(
        docs.map(|entry| entry.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "md")),
    );
    let mut count = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for Block { line, root, script } in shell_blocks(&text) {
            let name = format!("{}:{line}", file.display());
            match root && !geteuid().is_root() {
                true => skip::record(Some(&format!("docs::{name}")), "mounts need root"),
                false => run(&name, &script).await,
            }
            count += 1;
        }
    }
    assert!(count >= 5, "only {count} blocks of shell commands were found in the docs");
}

async fn run(name: &str, script: &str) {
    let folder = tempfile::tempdir().unwrap();
    let _leftovers = Leftovers(folder.path());
    let wharf = Path::new(env!("CARGO_BIN_EXE_wharf"));
    let example = wharf.with_file_name("example-plugin");
    assert!(example.exists(), "{} is not built: test with --workspace", example.display());
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(format!("{PRELUDE}{script}"));
    bash.env("WHARF", wharf).env("EXAMPLE", example).env("TMPDIR", folder.path());
    bash.current_dir(folder.path());
    let mut process = Process::start("docs", &bash, folder.path()).unwrap();
    let status = process.wait(PATIENCE).await.unwrap_or_else(|error| panic!("{name}: {error:#}"));
    assert!(status.success(), "{name}: {status}\n{script}\n{}", process.tail());
}

/// What a script that failed halfway leaves mounted or attached is undone.
struct Leftovers<'a>(&'a Path);

impl Drop for Leftovers<'_> {
    fn drop(&mut self) {
        const UNDO: &str = r#"
            tac /proc/self/mountinfo | awk -v dir="$0/" 'index($5, dir) == 1 { print $5 }' | xargs -r umount --lazy
            losetup --noheadings --list --output NAME,BACK-FILE |
                awk -v dir="$0/" 'index($2, dir) == 1 { print $1 }' | xargs -r losetup --detach
        "#;
        // Without root there is nothing to undo.
        let _ = Command::new("bash").args(["-c", UNDO]).arg(self.0).output();
    }
}

/// A fenced block marked `sh`, or `sh root` if it mounts.
struct Block {
    line: usize,
    root: bool,
    script: String,
}

fn shell_blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line) {
            (None, "```sh" | "```sh root") => {
                let root = line.ends_with("root");
                open = Some(Block { line: index + 2, root, script: String::new() });
            }
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), line) => {
                block.script.push_str(line);
                block.script.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}
