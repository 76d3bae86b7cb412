use std::{path::Path, process::ExitCode};

use anyhow::{Context, anyhow};
use tokio_util::sync::CancellationToken;

use super::{local, node::Node, registration, screen::Screen, traces, volume};

/// Runs the demo in a temporary folder that is removed at the end, also after a failure.
pub(super) async fn run(verbose: bool, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let screen = Screen::new();
    let folder = tempfile::Builder::new().prefix("wharf-demo-").tempdir()?;
    // Mount tables hold resolved paths, and drivers refuse symlinks.
    let path = folder.path().canonicalize()?;
    let outcome = play(&screen, &path, verbose, &stop).await;
    // Removing the folder must not delete through a mount that is left.
    let cleared = traces::check(&path)
        .and_then(|()| folder.close().with_context(|| format!("removing {}", path.display())));
    match outcome.and(cleared) {
        Ok(()) => {
            screen.step("done: every step succeeded, and nothing is left");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            screen.failed(&format!("{error:#}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The outcome of `work`, or an error if the demo is stopped before.
pub(super) async fn unless_stopped<T>(
    stop: &CancellationToken,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let stopped = || Err(anyhow!("stopped by a signal"));
    stop.run_until_cancelled(work).await.unwrap_or_else(stopped)
}

async fn play(
    screen: &Screen,
    folder: &Path,
    verbose: bool,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let registry = folder.join("plugins_registry");
    screen.step(&format!("plugin manager starts on {}", registry.display()));
    let node = Node::start(&registry).await?;
    let mut scene = node.scene(screen);
    unless_stopped(stop, registration::play(&mut scene, &node, folder, verbose)).await?;
    match local::missing() {
        Some(what) => screen.step(&format!("the life of a volume is left out: {what}")),
        None => volume::play(&mut scene, &node, folder, stop).await?,
    }
    node.stop().await;
    Ok(())
}
