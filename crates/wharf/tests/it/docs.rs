//! Runs the commands of the README and the docs.

use std::{path::Path, process::Command, time::Duration};

use rustix::process::geteuid;
use wharf_testkit::{
    docs::{self, Block, Scratch},
    process::Process,
    skip,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a reader's shell would run through cargo is already built; anything else that the docs ask
/// of cargo is a mistake.
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
    let blocks = docs::blocks().unwrap();
    assert!(blocks.len() >= 5, "only {} blocks of shell commands in the docs", blocks.len());
    for block in blocks {
        let test = format!("docs::{}", block.name());
        if block.root && !geteuid().is_root() {
            skip::record(Some(&test), "mounts need root");
        } else if let Some(program) = block.missing_program() {
            skip::record(Some(&test), &format!("needs {program}, which is not installed"));
        } else {
            run(&block).await;
        }
    }
}

async fn run(block: &Block) {
    let scratch = Scratch(tempfile::tempdir().unwrap());
    let folder = scratch.0.path();
    let wharf = Path::new(env!("CARGO_BIN_EXE_wharf"));
    let example = wharf.with_file_name("example-plugin");
    assert!(example.exists(), "{} is not built: test with --workspace", example.display());
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(format!("{PRELUDE}{}", block.script));
    bash.env("WHARF", wharf).env("EXAMPLE", example).env("TMPDIR", folder);
    bash.current_dir(folder);
    let mut process = Process::start("docs", &bash, folder).unwrap();
    let name = block.name();
    let status = process.wait(PATIENCE).await.unwrap_or_else(|error| panic!("{name}: {error:#}"));
    assert!(status.success(), "{name}: {status}\n{}\n{}", block.script, process.tail());
}
