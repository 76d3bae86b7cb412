//! Queries about pools: the running driver answers through its admin socket, otherwise the disk is
//! read.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use wharf_driver::{
    admin::{self, Answer, Question, Request},
    config::DEFAULT_POOL,
    inspect::{self, PoolUsage, Row},
    pool::{Account, Layout, identity, identity::Found},
    pool_image,
    pools::{PoolState, PoolStatus},
    state_dir::StateDir,
    store::Store,
};

use super::{DriverArgs, Selector};

/// A pool that no running driver serves.
struct OfflinePool {
    name: String,
    folder: PathBuf,
    layout: Layout,
}

/// The files of the pool in a folder.
pub(super) fn layout(folder: &Path) -> anyhow::Result<Layout> {
    let layout = Layout::new(pool_image::folder(folder));
    if !layout.volumes().is_dir() {
        bail!(
            "{} is not a pool: it lacks the folder volumes (is its disk or its pool image mounted?)",
            folder.display()
        );
    }
    Ok(layout)
}

impl DriverArgs {
    /// The driver's admin socket.
    pub(super) fn socket(&self) -> PathBuf {
        StateDir::admin_socket(&self.state_dir, &self.driver_name)
    }
}

impl Selector {
    /// The running driver's answer, or the disk's if no driver runs.
    pub(super) fn answer(&self, question: &Question) -> anyhow::Result<Answer> {
        let answer = match self.ask(question.clone())? {
            Some(answer) => answer,
            None => self.look(question)?,
        };
        match answer {
            Answer::Failed(reason) => bail!("{reason}"),
            answer => Ok(answer),
        }
    }

    /// Asks the running driver; `None` if none runs.
    pub(super) fn ask(&self, question: Question) -> anyhow::Result<Option<Answer>> {
        let Some(folder) = self.folder()? else {
            return driver(&self.driver.socket(), self.pool.clone(), question);
        };
        let layout = layout(&folder)?;
        let pool = match identity::look(&layout)? {
            Found::Pool(id) => Some(id.to_string()),
            Found::Unmarked | Found::Nothing => None,
        };
        driver(&layout.admin_socket(), pool, question)
    }

    /// The root of the pool that holds a volume, found without a driver.
    pub(super) fn folder_of(&self, row: &Row) -> anyhow::Result<PathBuf> {
        let pools = self.offline()?;
        match pools.into_iter().find(|pool| pool.name == row.pool) {
            Some(pool) => Ok(pool.layout.root().to_owned()),
            None => bail!("pool {} is missing", row.pool),
        }
    }

    /// The folder in --pool; `None` if its value is the name of a pool that the driver knows.
    fn folder(&self) -> anyhow::Result<Option<PathBuf>> {
        let Some(pool) = &self.pool else { return Ok(None) };
        if pool.contains('/') {
            return Ok(Some(pool.into()));
        }
        let notes = StateDir::peek(&self.driver.state_dir, &self.driver.driver_name)?;
        let folder = PathBuf::from(pool);
        let named = notes.known.contains_key(pool) || notes.damaged.contains_key(pool);
        Ok((!named && folder.is_dir()).then_some(folder))
    }

    /// The selected pools, found without a driver.
    fn offline(&self) -> anyhow::Result<Vec<OfflinePool>> {
        let notes = StateDir::peek(&self.driver.state_dir, &self.driver.driver_name)?;
        if let Some(folder) = self.folder()? {
            let layout = layout(&folder)?;
            let found = identity::look(&layout)?;
            let noted = notes.known.iter().find(|(_, note)| found == Found::Pool(note.pool));
            let name = noted.map_or(DEFAULT_POOL, |(name, _)| name).to_owned();
            return Ok(vec![OfflinePool { name, folder, layout }]);
        }
        let is_meant = |name: &String| self.pool.as_ref().is_none_or(|it| it == name);
        if let Some((name, reason)) = notes.damaged.iter().find(|(name, _)| is_meant(name)) {
            bail!("pool {name}: {reason}; set --pool to the pool's folder");
        }
        let meant = notes.known.into_iter().filter(|(name, _)| is_meant(name));
        let pools: Vec<_> = meant
            .map(|(name, note)| {
                let layout = layout(&note.folder).with_context(|| format!("pool {name}"))?;
                Ok(OfflinePool { name, folder: note.folder, layout })
            })
            .collect::<anyhow::Result<_>>()?;
        if pools.is_empty() {
            bail!(
                "no driver answers at {}, and it has left no note of such a pool: name the pool's folder with --pool DIR, or \
                 the driver with --state-dir and --driver-name",
                self.driver.socket().display()
            );
        }
        Ok(pools)
    }

    /// Reads the disk without changing anything.
    fn look(&self, question: &Question) -> anyhow::Result<Answer> {
        let (mut rows, mut usages, mut findings) = (Vec::new(), Vec::new(), Vec::new());
        for OfflinePool { name, folder, layout } in self.offline()? {
            let file = layout.state();
            if !file.exists() {
                bail!(
                    "{} is missing: `wharf driver pool rebuild`, or the driver's next start, rebuilds it",
                    file.display()
                );
            }
            let store = Store::open(&file, &layout.ballast())?;
            store.read(|state| {
                match question {
                    Question::List => rows.extend(inspect::list(&name, &layout, state)),
                    Question::Usage => {
                        let usage = inspect::usage(Account::at(layout.root(), state)?, state);
                        let pool = status(&name, &folder, &layout)?;
                        usages.push(PoolUsage { pool, usage: Some(usage) });
                    }
                    Question::Check => findings.extend(inspect::check(&layout, state)?),
                    _ => bail!("this command needs a running driver: start it"),
                }
                Ok(())
            })?;
        }
        Ok(match question {
            Question::Usage => Answer::Usage(usages),
            Question::Check => Answer::Check(findings),
            _ => Answer::List(rows),
        })
    }
}

/// Asks the driver at a socket; `None` if none runs.
pub(super) fn driver(
    socket: &Path,
    pool: Option<String>,
    question: Question,
) -> anyhow::Result<Option<Answer>> {
    let Ok(mut stream) = UnixStream::connect(socket) else { return Ok(None) };
    stream.set_read_timeout(Some(question.timeout()))?;
    stream.set_write_timeout(Some(admin::TIMEOUT))?;
    writeln!(stream, "{}", serde_json::to_string(&Request { pool, question })?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).with_context(|| format!("{}", socket.display()))?;
    let answer = serde_json::from_str(&line).with_context(|| {
        format!(
            "{}: cannot parse the driver's answer; does it run another version of wharf?",
            socket.display()
        )
    })?;
    Ok(Some(answer))
}

fn status(name: &str, folder: &Path, layout: &Layout) -> anyhow::Result<PoolStatus> {
    let uuid = match identity::look(layout)? {
        Found::Pool(id) => Some(id.to_string()),
        Found::Unmarked | Found::Nothing => None,
    };
    Ok(PoolStatus {
        name: name.to_owned(),
        folder: folder.to_owned(),
        uuid,
        kinds: String::new(),
        state: PoolState::Absent(
            "no driver runs; floors, limits and capacities are those of the default flags"
                .to_owned(),
        ),
    })
}
