//! A hook server's file that changes while calls arrive.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tokio::{task::JoinSet, time::timeout};

use super::{
    Counts,
    calls::{self, framed},
    hooks::{self, Hooks},
    records,
    rig::Rig,
    server,
};
use crate::{report::Report, sample::Sample};

const LIMIT: f64 = 100.0;
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures the time from the close of a file that names another server until that server is
/// called.
pub(super) async fn measure(binary: &Path, counts: &Counts, report: &mut Report) -> Result<()> {
    let changes = counts.changes;
    report.section(&format!("a hook server's file is changed, {changes} times"));
    let rig = Rig::new(binary)?;
    let _runtime = rig.runtime(0).await?;
    let servers = [Asked::serve(rig.path("first.sock")), Asked::serve(rig.path("second.sock"))];
    let proxy = rig.proxy("proxy")?;
    let client = proxy.client().await?;
    let ids = records::make(&client, 0, 1).await?;
    let mut took = Sample::default();
    let mut longest = Duration::ZERO;
    for (number, server) in servers.iter().cycle().take(changes).enumerate() {
        let mut asked = server.hooks.asked();
        asked.mark_unchanged();
        hooks::register(&rig.hooks(), &server.socket)?;
        let closed = Instant::now();
        let update = framed(&calls::update_container(&ids[0], number as i64 + 1));
        let change = async {
            while !asked.has_changed()? {
                client.call(calls::UPDATE_CONTAINER, &update).await?;
            }
            anyhow::Ok(closed.elapsed())
        };
        let change = timeout(PATIENCE, change).await.with_context(|| proxy.process.tail())??;
        took.add(change);
        longest = longest.max(change);
    }
    report.at_most("closed to asked, p50", took.p50(), LIMIT, "ms");
    report.at_most("closed to asked, longest", longest.as_secs_f64() * 1e3, LIMIT, "ms");
    Ok(())
}

/// A hook server in this process.
struct Asked {
    socket: PathBuf,
    hooks: Arc<Hooks>,
    _serving: JoinSet<Result<()>>,
}

impl Asked {
    fn serve(socket: PathBuf) -> Self {
        let hooks = Arc::new(Hooks::default());
        let mut serving = JoinSet::new();
        let (path, service) = (socket.clone(), hooks.clone());
        serving.spawn(async move { server::serve(&path, service).await });
        Self { socket, hooks, _serving: serving }
    }
}
