use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};
use wharf_registration::survey::{self, Line};

use super::{Folder, Output, table};
use crate::runtime::{Threads, run};

/// Limit for a plugin to answer after its socket appears.
const PATIENCE: Duration = Duration::from_secs(10);

/// Watches a folder, and calls GetInfo when a socket appears. Registrations do not change.
#[derive(Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    folder: Folder,
    /// Form of the output: a table that is redrawn after each change, or JSON events, one per line
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

impl Watch {
    pub(crate) fn run(self) -> ExitCode {
        run(Threads::One, |stop| async move {
            let mut folder = DirWatch::start(Options {
                root: self.folder.root.clone(),
                depth: Depth::Tree,
                kind: Kind::Socket,
                rescan: Duration::from_secs(10),
                create_root: None,
            });
            let mut screen = Screen {
                watch: self,
                lines: BTreeMap::new(),
                live: std::io::stdout().is_terminal(),
            };
            let mut asking = JoinSet::new();
            loop {
                tokio::select! {
                    () = stop.cancelled() => break,
                    change = folder.next() => match change {
                        None => break,
                        Some(change) => screen.changed(change, &mut asking)?,
                    },
                    Some(Ok(line)) = asking.join_next() => screen.answered(line)?,
                }
            }
            folder.stop().await;
            Ok(ExitCode::SUCCESS)
        })
    }
}

struct Screen {
    watch: Watch,
    lines: BTreeMap<PathBuf, Option<Line>>,
    live: bool,
}

impl Screen {
    fn changed(&mut self, change: Change, asking: &mut JoinSet<Line>) -> anyhow::Result<()> {
        match change {
            Change::Appeared { path, .. } | Change::Replaced { path, .. } => {
                self.event("seen", json!({ "socket": path }))?;
                asking.spawn(survey::ask(path.clone(), PATIENCE));
                self.lines.insert(path, None);
                Ok(())
            }
            Change::Vanished { path } => {
                self.event("gone", json!({ "socket": path }))?;
                self.lines.remove(&path);
                self.draw()
            }
            Change::Synced => self.draw(),
            Change::Trouble { message } => {
                self.event("trouble", json!({ "error": message }))?;
                writeln!(std::io::stderr(), "{}: {message}", self.watch.folder.root.display())?;
                Ok(())
            }
        }
    }

    fn answered(&mut self, line: Line) -> anyhow::Result<()> {
        self.event("answered", serde_json::to_value(&line)?)?;
        // The socket may have vanished before the answer.
        if let Some(known) = self.lines.get_mut(&line.socket) {
            *known = Some(line);
        }
        self.draw()
    }

    fn event(&self, kind: &str, mut event: serde_json::Value) -> anyhow::Result<()> {
        if self.watch.output == Output::Json {
            event["event"] = kind.into();
            event["at"] = jiff::Timestamp::now().to_string().into();
            let mut out = std::io::stdout().lock();
            writeln!(out, "{event}")?;
            out.flush()?;
        }
        Ok(())
    }

    fn draw(&self) -> anyhow::Result<()> {
        if self.watch.output != Output::Table {
            return Ok(());
        }
        let lines: Vec<Line> = self.lines.values().flatten().cloned().collect();
        let mut out = std::io::stdout().lock();
        if self.live {
            // Move the cursor home and clear the screen.
            write!(out, "\x1b[H\x1b[2J")?;
        }
        writeln!(out, "{}", table::render(&self.watch.folder.root, &lines))?;
        if !self.live {
            writeln!(out)?;
        }
        out.flush()?;
        Ok(())
    }
}
