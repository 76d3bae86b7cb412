//! The commands of the README and the docs, run as they stand there.

use std::{path::Path, process::Command, time::Duration};

use wharf_testkit::{peers::repository, process::Process};

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
        for (line, script) in shell_blocks(&text) {
            run(&format!("{}:{line}", file.display()), &script).await;
            count += 1;
        }
    }
    assert!(count >= 5, "only {count} blocks of shell commands were found in the docs");
}

async fn run(name: &str, script: &str) {
    let folder = tempfile::tempdir().unwrap();
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

/// The fenced blocks marked `sh`, with the number of their first line.
fn shell_blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line) {
            (None, "```sh") => open = Some((index + 2, String::new())),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some((_, block)), line) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}
