//! `wharf driver pool`: asks the running driver, or reads the disk if no driver runs.

mod ask;
mod table;

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use wharf_driver::{
    admin::{self, Answer, Question},
    inspect::Row,
    pool::{PoolOptions, rebuild},
};
use wharf_facts::quantity;

use super::{DRIVER_NAME, STATE_DIR};

#[derive(Subcommand)]
pub(crate) enum Pool {
    /// Lists volumes and snapshots, and the space of their images
    Ls(Target),
    /// Shows the pools, their free space and the space promised to volumes
    Usage(Target),
    /// Compares records and images; exits with 1 if they disagree
    Check(Target),
    /// Prints the path of a volume's or snapshot's image
    Path(Image),
    /// Repairs the filesystem of an unused volume; keeps a copy of the damaged image
    ///
    /// Use it for a volume that the driver refuses as damaged. e2fsck or xfs_repair may have to
    /// remove files. The copy is in the pool's folder quarantine: delete it once you have checked
    /// the volume.
    Repair(Repair),
    /// Rebuilds the state file from the marks on the images; stop the driver first
    Rebuild(Folder),
    /// Serves the current contents of a pool's folder in place of the missing pool
    ///
    /// Use it for a lost disk: mount an empty disk in its place, or restore a backup of the pool,
    /// then adopt it. The driver forgets volumes of the lost pool: DeleteVolume of them succeeds.
    Adopt(Named),
    /// Forgets a pool whose disk is lost, so that its volumes can be deleted
    Forget(Named),
    /// Closes a pool to new volumes; existing volumes are served as before
    Drain(Drain),
    /// Converts a pool to the format of this release; stop the driver first
    Migrate(Folder),
}

/// Flags that select the driver.
#[derive(Args)]
pub(crate) struct DriverArgs {
    /// The driver's --state-dir
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
    /// The driver's --driver-name
    #[arg(long, value_name = "NAME", default_value = DRIVER_NAME)]
    driver_name: String,
}

/// The flag that selects the pool.
#[derive(Args)]
pub(crate) struct Selector {
    /// The pool's name, or its folder as in the driver's --pool. Default: all pools
    #[arg(long, value_name = "NAME|DIR")]
    pool: Option<String>,
    #[command(flatten)]
    driver: DriverArgs,
}

#[derive(Args)]
pub(crate) struct Folder {
    /// The pool's folder, as in the driver's --pool
    #[arg(long, value_name = "DIR")]
    pool: PathBuf,
}

#[derive(Args)]
pub(crate) struct Named {
    /// The pool's name
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    driver: DriverArgs,
}

#[derive(Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    named: Named,
    /// Open the pool to new volumes again
    #[arg(long)]
    off: bool,
}

#[derive(Args)]
pub(crate) struct Image {
    #[command(flatten)]
    selector: Selector,
    /// ID or name of the volume or snapshot, as `ls` shows it
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Args)]
pub(crate) struct Repair {
    #[command(flatten)]
    image: Image,
    /// Repair without asking
    #[arg(long)]
    yes: bool,
}

#[derive(Args)]
pub(crate) struct Target {
    #[command(flatten)]
    selector: Selector,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

impl Pool {
    pub(crate) fn run(self) -> ExitCode {
        let done = match self {
            Self::Ls(target) => target.show(&Question::List),
            Self::Usage(target) => target.show(&Question::Usage),
            Self::Check(target) => target.show(&Question::Check),
            Self::Path(image) => image.path(),
            Self::Repair(repair) => repair.run(),
            Self::Rebuild(folder) => folder.rebuild(),
            Self::Adopt(Named { name, driver }) => driver.order(Question::Adopt(name)),
            Self::Forget(Named { name, driver }) => driver.order(Question::Forget(name)),
            Self::Drain(Drain { named: Named { name, driver }, off }) => {
                driver.order(Question::Drain { pool: name, on: !off })
            }
            Self::Migrate(folder) => folder.migrate(),
        };
        done.unwrap_or_else(|error| {
            eprintln!("wharf driver pool: {error:#}");
            ExitCode::FAILURE
        })
    }
}

impl Folder {
    fn rebuild(&self) -> anyhow::Result<ExitCode> {
        let rebuilt = rebuild(ask::layout(&self.pool)?.root())?;
        if let Some(old) = &rebuilt.old_state {
            say(format_args!("the old state is kept as {}", old.display()))?;
        }
        for image in &rebuilt.unmarked {
            say(format_args!("{}: left alone, it has no mark", image.display()))?;
        }
        for image in &rebuilt.unreadable {
            say(format_args!("{}: left alone, it cannot be read", image.display()))?;
        }
        say(format_args!(
            "rebuilt: {} volumes, {} snapshots, {} groups",
            rebuilt.volumes, rebuilt.snapshots, rebuilt.groups
        ))?;
        Ok(ExitCode::SUCCESS)
    }

    fn migrate(&self) -> anyhow::Result<ExitCode> {
        let done = wharf_driver::pool::identity::migrate(&ask::layout(&self.pool)?)?;
        say(done)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl DriverArgs {
    /// Sends a request to the running driver.
    fn order(&self, question: Question) -> anyhow::Result<ExitCode> {
        match ask::driver(&self.socket(), None, question)? {
            Some(Answer::Done(done)) => say(done)?,
            Some(Answer::Failed(reason)) => bail!("{reason}"),
            Some(_) => {
                bail!("cannot parse the driver's answer; does it run another version of wharf?")
            }
            None => bail!(
                "no driver answers at {}: start the driver, or set --state-dir and --driver-name to those of the driver",
                self.socket().display()
            ),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Image {
    fn path(&self) -> anyhow::Result<ExitCode> {
        say(self.row()?.image.display())?;
        Ok(ExitCode::SUCCESS)
    }

    /// Finds the volume or snapshot by ID or name.
    fn row(&self) -> anyhow::Result<Row> {
        let Answer::List(rows) = self.selector.answer(&Question::List)? else {
            bail!("the driver did not list its volumes; does it run another version of wharf?");
        };
        let mut meant = rows.into_iter().filter(|row| row.id == self.id || row.name == self.id);
        match (meant.next(), meant.next()) {
            (Some(row), None) => Ok(row),
            (None, _) => {
                bail!("no volume or snapshot {:?}: `wharf driver pool ls` lists them", self.id)
            }
            (Some(_), Some(_)) => {
                bail!("several volumes or snapshots have the name {:?}: use the ID", self.id)
            }
        }
    }
}

impl Repair {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let row = self.image.row()?;
        if row.kind != "volume" {
            bail!("{} is a {}: restore it into a volume, and repair that", row.id, row.kind);
        }
        if !self.yes && !confirmed(&row)? {
            say("no changes made")?;
            return Ok(ExitCode::FAILURE);
        }
        let selector = &self.image.selector;
        let done = match selector.ask(Question::Repair(row.id.clone()))? {
            Some(Answer::Repair(done)) => done,
            Some(Answer::Failed(reason)) => bail!("{reason}"),
            Some(_) => {
                bail!("cannot parse the driver's answer; does it run another version of wharf?")
            }
            None => {
                let root = selector.folder_of(&row)?;
                let (pool, _) = wharf_driver::pool::Pool::open(&root, PoolOptions::default())?;
                pool.repair(&row.id, admin::REPAIR_TIMEOUT)?
            }
        };
        say(&done.report)?;
        say(format_args!(
            "repaired {}; a copy of the damaged image is {}",
            row.id,
            done.kept.display()
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks for confirmation on the terminal.
fn confirmed(row: &Row) -> anyhow::Result<bool> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        bail!("a repair changes the volume: run this at a terminal, or with --yes");
    }
    say(format_args!(
        "Check and repair {} ({}, {}, {})? Files may be lost. A copy of its image is kept. [y/N]",
        row.id,
        row.name.escape_debug(),
        human(row.size),
        row.content
    ))?;
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

impl Target {
    fn show(&self, question: &Question) -> anyhow::Result<ExitCode> {
        let answer = self.selector.answer(question)?;
        match self.output {
            Output::Json => say(table::json(&answer)?)?,
            Output::Table => say(table::table(&answer))?,
        }
        let disagree = matches!(&answer, Answer::Check(findings) if !findings.is_empty());
        Ok(if disagree { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Bytes in readable form.
fn human(bytes: u64) -> String {
    quantity::human(bytes.try_into().unwrap_or(i64::MAX))
}

/// Prints a line. A closed pipe is an error.
fn say(text: impl std::fmt::Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}
