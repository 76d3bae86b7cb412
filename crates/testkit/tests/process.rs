//! Owned processes: none outlives its owner, in any thread or runtime.

use std::{path::Path, process::Command, time::Duration};

use anyhow::Result;
use wharf_testkit::process::{Process, wait_for};

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn stop_asks_and_tells_how_it_ended() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done";
    let mut process = start(script, folder.path())?;
    process.line(SOON, "a line", |line| (line == "ready").then_some(())).await?;
    assert_eq!(process.stop(SOON).await?.code(), Some(3));
    Ok(())
}

#[tokio::test]
async fn an_early_end_is_an_error_that_quotes_the_log() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut process = start("echo no such flag >&2; exit 1", folder.path())?;
    let never = || std::future::ready(None::<()>);
    let error = process.ready(SOON, "what never comes", never).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("no such flag") && text.contains("exit status: 1"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_dropped_process_takes_its_group_along() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut process = start("sleep 1000 & echo $!; wait", folder.path())?;
    let grandchild: u32 = process.line(SOON, "an ID", |line| line.parse().ok()).await?;
    drop(process);
    wait_for(SOON, "the grandchild to end", || std::future::ready(ended(grandchild))).await
}

#[test]
fn a_process_survives_the_thread_and_the_runtime_that_started_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_owned();
    let starter = std::thread::spawn(move || -> Result<Process> {
        runtime()?.block_on(async {
            let mut process = start("echo ready; exec sleep 1000", &path)?;
            process.line(SOON, "a line", |line| (line == "ready").then_some(())).await?;
            Ok(process)
        })
    });
    let mut process = starter.join().expect("the starter does not panic")?;
    runtime()?.block_on(async {
        assert!(process.wait(Duration::from_millis(100)).await.is_err(), "{}", process.tail());
        process.stop(SOON).await.map(drop)
    })
}

fn start(script: &str, folder: &Path) -> Result<Process> {
    Process::start("script", Command::new("sh").args(["-c", script]), folder)
}

/// Whether the process has ended, or is dead and not collected yet.
fn ended(id: u32) -> Option<()> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    (status.is_empty() || status.contains("State:\tZ")).then_some(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
