//! `wharf driver pool`: through the running driver, or on the disk when there is none.

mod ask;
mod table;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use wharf_driver::admin::{self, Answer, Question};
use wharf_driver::inspect::Row;
use wharf_driver::pool::{PoolOptions, rebuild};
use wharf_facts::quantity;

use super::{DRIVER_NAME, STATE_DIR};

#[derive(Subcommand)]
pub(crate) enum Pool {
    /// Lists volumes and snapshots with what their images take
    Ls(Target),
    /// Shows which pools are served, how full they are and what they owe
    Usage(Target),
    /// Compares records and images; exits with 1 when they disagree
    Check(Target),
    /// Prints the path of a volume's or snapshot's image
    Path(Image),
    /// Repairs the filesystem of a volume that nobody uses; keeps a copy of the image as it was
    ///
    /// For a volume that the driver refuses as damaged. e2fsck or xfs_repair may have to remove files. The copy is in the
    /// pool's folder quarantine: delete it once the volume is as you want it.
    Repair(Repair),
    /// Makes the state file anew from the marks on the images; the driver must be stopped
    Rebuild(Folder),
    /// Serves what is in a pool's folder now, in place of the pool that is missing
    ///
    /// For a disk that is lost: mount an empty one in its place, or restore a backup of the pool, then adopt it. Volumes of
    /// the lost pool are gone for the driver: DeleteVolume of them succeeds.
    Adopt(Named),
    /// Forgets a pool whose disk is lost, so that its volumes can be deleted
    Forget(Named),
    /// Closes a pool to new volumes; those on it are served as before
    Drain(Drain),
    /// Brings a pool to the format of this release; the driver must be stopped
    Migrate(Folder),
}

/// Which driver is asked.
#[derive(Args)]
pub(crate) struct DriverArgs {
    /// The driver's --state-dir
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,
    /// The driver's --driver-name
    #[arg(long, value_name = "NAME", default_value = DRIVER_NAME)]
    driver_name: String,
}

/// Which pool is meant.
#[derive(Args)]
pub(crate) struct Selector {
    /// The pool's name, or its folder as the driver's --pool; all pools of the driver by default
    #[arg(long, value_name = "NAME|DIR")]
    pool: Option<String>,
    #[command(flatten)]
    driver: DriverArgs,
}

#[derive(Args)]
pub(crate) struct Folder {
    /// The pool's folder, as the driver's --pool
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
    /// Id or name of the volume or snapshot, as `ls` shows it
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Args)]
pub(crate) struct Repair {
    #[command(flatten)]
    image: Image,
    /// Repair without asking first
    #[arg(long)]
    yes: bool,
}

#[derive(Args)]
pub(crate) struct Target {
    #[command(flatten)]
    selector: Selector,
    /// Form of the answer
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
            say(format_args!("{}: has no mark, and is left alone", image.display()))?;
        }
        for image in &rebuilt.unreadable {
            say(format_args!("{}: cannot be read now, and is left alone", image.display()))?;
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
    /// Has the running driver do something.
    fn order(&self, question: Question) -> anyhow::Result<ExitCode> {
        match ask::driver(&self.socket(), None, question)? {
            Some(Answer::Done(done)) => say(done)?,
            Some(Answer::Failed(reason)) => bail!("{reason}"),
            Some(_) => bail!("the driver's answer is not understood; is it of another version?"),
            None => bail!(
                "no driver answers at {}: start it, or name it with --state-dir and --driver-name",
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

    /// The volume or snapshot that is meant.
    fn row(&self) -> anyhow::Result<Row> {
        let Answer::List(rows) = self.selector.answer(&Question::List)? else {
            bail!("the driver did not list its volumes; is it of another version?");
        };
        let mut meant = rows.into_iter().filter(|row| row.id == self.id || row.name == self.id);
        match (meant.next(), meant.next()) {
            (Some(row), None) => Ok(row),
            (None, _) => {
                bail!("no volume or snapshot {:?}: `wharf driver pool ls` lists them", self.id)
            }
            (Some(_), Some(_)) => bail!("{:?} is the name of several: give the id", self.id),
        }
    }
}

impl Repair {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let row = self.image.row()?;
        if row.kind != "volume" {
            bail!("{} is a {}: restore it, and repair the volume", row.id, row.kind);
        }
        if !self.yes && !confirmed(&row)? {
            say("nothing was changed")?;
            return Ok(ExitCode::FAILURE);
        }
        let selector = &self.image.selector;
        let done = match selector.ask(Question::Repair(row.id.clone()))? {
            Some(Answer::Repair(done)) => done,
            Some(Answer::Failed(reason)) => bail!("{reason}"),
            Some(_) => bail!("the driver's answer is not understood; is it of another version?"),
            None => {
                let root = selector.folder_of(&row)?;
                let (pool, _) = wharf_driver::pool::Pool::open(&root, PoolOptions::default())?;
                pool.repair(&row.id, admin::REPAIR_TIMEOUT)?
            }
        };
        say(&done.report)?;
        say(format_args!("repaired {}; the image as it was is {}", row.id, done.kept.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks the person at the terminal.
fn confirmed(row: &Row) -> anyhow::Result<bool> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        bail!("a repair changes the volume: run this at a terminal, or with --yes");
    }
    say(format_args!(
        "{} ({}, {}, {}) is checked and repaired; files may be lost. A copy of its image is kept. Go on? [y/N]",
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

/// Bytes for a person.
fn human(bytes: u64) -> String {
    quantity::human(bytes.try_into().unwrap_or(i64::MAX))
}

/// Standard output may be a closed pipe: that is an error like any other.
fn say(text: impl std::fmt::Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}
