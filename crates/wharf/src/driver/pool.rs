//! `wharf driver pool`: through the running driver, or on the disk when there is none.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{Table, presets::NOTHING};
use wharf_driver::admin::{self, Answer, Question};
use wharf_driver::inspect::{self, Finding, Row, UsageReport};
use wharf_driver::pool::{Account, Layout, PoolOptions, rebuild};
use wharf_driver::pool_image;
use wharf_driver::store::Store;
use wharf_facts::quantity;

#[derive(Subcommand)]
pub(crate) enum Pool {
    /// Lists volumes and snapshots with what their images take
    Ls(Target),
    /// Shows how full the pool is and what it owes
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
}

#[derive(Args)]
pub(crate) struct Folder {
    /// The pool's folder, as the driver's --pool
    #[arg(long, value_name = "DIR")]
    pool: PathBuf,
}

#[derive(Args)]
pub(crate) struct Image {
    #[command(flatten)]
    folder: Folder,
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
    folder: Folder,
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
        };
        done.unwrap_or_else(|error| {
            eprintln!("wharf driver pool: {error:#}");
            ExitCode::FAILURE
        })
    }
}

impl Folder {
    fn layout(&self) -> anyhow::Result<Layout> {
        let layout = Layout::new(pool_image::folder(&self.pool));
        if !layout.volumes().is_dir() {
            bail!(
                "{} is no pool: it has no folder volumes (is a pool image not mounted?)",
                self.pool.display()
            );
        }
        Ok(layout)
    }

    fn rebuild(&self) -> anyhow::Result<ExitCode> {
        let rebuilt = rebuild(self.layout()?.root())?;
        if let Some(old) = &rebuilt.old_state {
            say(format_args!("the old state is kept as {}", old.display()))?;
        }
        for image in &rebuilt.unmarked {
            say(format_args!("{}: has no mark, and is left alone", image.display()))?;
        }
        say(format_args!(
            "rebuilt: {} volumes, {} snapshots, {} groups",
            rebuilt.volumes, rebuilt.snapshots, rebuilt.groups
        ))?;
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
        let Answer::List(rows) = answer(&self.folder.layout()?, &Question::List)? else {
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
        let layout = self.image.folder.layout()?;
        let question = Question::Repair(row.id.clone());
        let done = match ask(&layout, &question)? {
            Some(Answer::Repair(done)) => done,
            Some(Answer::Failed(reason)) => bail!("{reason}"),
            Some(_) => bail!("the driver's answer is not understood; is it of another version?"),
            None => {
                let (pool, _) =
                    wharf_driver::pool::Pool::open(layout.root(), PoolOptions::default())?;
                pool.repair(&row.id, admin::REPAIR_PATIENCE)?
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

/// What the running driver answers, or else the disk.
fn answer(layout: &Layout, question: &Question) -> anyhow::Result<Answer> {
    let answer = match ask(layout, question)? {
        Some(answer) => answer,
        None => look(layout, question)?,
    };
    match answer {
        Answer::Failed(reason) => bail!("{reason}"),
        answer => Ok(answer),
    }
}

impl Target {
    fn show(&self, question: &Question) -> anyhow::Result<ExitCode> {
        let answer = answer(&self.folder.layout()?, question)?;
        match self.output {
            Output::Json => say(json(&answer)?)?,
            Output::Table => say(table(&answer))?,
        }
        let disagree = matches!(&answer, Answer::Check(findings) if !findings.is_empty());
        Ok(if disagree { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Asks the running driver; `None` when there is none.
fn ask(layout: &Layout, question: &Question) -> anyhow::Result<Option<Answer>> {
    let path = layout.admin_socket();
    let Ok(mut stream) = UnixStream::connect(&path) else { return Ok(None) };
    stream.set_read_timeout(Some(question.patience()))?;
    stream.set_write_timeout(Some(admin::PATIENCE))?;
    writeln!(stream, "{}", serde_json::to_string(question)?)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).with_context(|| format!("{}", path.display()))?;
    let answer = serde_json::from_str(&line).with_context(|| {
        format!(
            "{}: the driver's answer is not understood; is it of another version?",
            path.display()
        )
    })?;
    Ok(Some(answer))
}

/// Looks at the disk, without changing anything.
fn look(layout: &Layout, question: &Question) -> anyhow::Result<Answer> {
    let state = layout.state();
    if !state.exists() {
        bail!(
            "{} is gone: `wharf driver pool rebuild`, or the driver's next start, makes it anew",
            state.display()
        );
    }
    let store = Store::open(&state, &layout.ballast())?;
    store.read(|state| {
        Ok(match question {
            Question::List => Answer::List(inspect::list(layout, state)),
            Question::Usage => {
                Answer::Usage(inspect::usage(Account::at(layout.root(), state)?, state))
            }
            Question::Check => Answer::Check(inspect::check(layout, state)?),
            Question::Repair(_) => bail!("a repair is not read off the disk"),
        })
    })
}

fn json(answer: &Answer) -> anyhow::Result<String> {
    Ok(match answer {
        Answer::List(rows) => serde_json::to_string_pretty(rows)?,
        Answer::Usage(usage) => serde_json::to_string_pretty(usage)?,
        Answer::Check(findings) => serde_json::to_string_pretty(findings)?,
        Answer::Repair(done) => serde_json::to_string_pretty(done)?,
        Answer::Failed(reason) => serde_json::to_string_pretty(reason)?,
    })
}

fn table(answer: &Answer) -> String {
    match answer {
        Answer::List(rows) => list(rows),
        Answer::Usage(report) => usage(report),
        Answer::Check(findings) => check(findings),
        Answer::Repair(done) => done.report.clone(),
        Answer::Failed(reason) => reason.clone(),
    }
}

fn list(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header([
        "KIND", "ID", "NAME", "SIZE", "TAKES", "EXTENTS", "BACKEND", "CONTENT", "STATE", "IMAGE",
    ]);
    for row in rows {
        table.add_row([
            row.kind.clone(),
            row.id.clone(),
            row.name.escape_debug().to_string(),
            human(row.size),
            human(row.allocated),
            row.extents.to_string(),
            row.backend.clone(),
            row.content.clone(),
            row.state.clone(),
            row.image.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        ]);
    }
    table.trim_fmt()
}

/// Bytes for a person.
fn human(bytes: u64) -> String {
    quantity::human(bytes.try_into().unwrap_or(i64::MAX))
}

fn usage(report: &UsageReport) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    for (name, bytes, about) in [
        ("total", report.total, "size of the pool's filesystem"),
        ("available", report.available, "left on it now"),
        ("promised", report.promised, "owed to volumes and snapshots"),
        ("floor", report.floor, "never promised"),
        ("capacity", report.capacity, "can still be promised"),
    ] {
        table.add_row([name.to_owned(), human(bytes), about.to_owned()]);
    }
    table.add_row(["volumes".to_owned(), report.volumes.to_string(), String::new()]);
    table.add_row(["snapshots".to_owned(), report.snapshots.to_string(), String::new()]);
    table.trim_fmt()
}

fn check(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "records and images agree".to_owned();
    }
    let line =
        |finding: &Finding| format!("{}: {}: {}", finding.object, finding.problem, finding.advice);
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Standard output may be a closed pipe: that is an error like any other.
fn say(text: impl std::fmt::Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}
