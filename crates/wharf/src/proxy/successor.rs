//! Starts a successor: the program at the path by which this process was started.
//!
//! LISTEN_PID must hold the successor's pid, which is not known before it runs. So this program is
//! started first, places the sockets as sd_listen_fds(3) expects them, and becomes the successor by
//! execve(2), which keeps the pid.

use std::{
    convert::Infallible,
    env,
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, anyhow};
use clap::Args;
use rustix::{
    io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd},
    param::linux_execfn,
    process::getpid,
};
use tokio::process::Child;
use wharf_criproxy::{Hello, PassedSocket};
use wharf_uds::{receive_files, send_files};

use super::inherited::{COUNT, FIRST, NAMES, PID};

/// The name of the channel to the predecessor among the inherited sockets.
pub(super) const CHANNEL: &str = "hand-over";

/// A file descriptor above those of all sockets.
const ASIDE: RawFd = 64;

/// The command line of this process, for its successor.
pub(super) struct Program {
    path: PathBuf,
    name: OsString,
    args: Vec<OsString>,
}

impl Program {
    pub(super) fn own() -> Self {
        // The path passed to execve(2). /proc/self/exe names the file, which may be deleted by
        // then.
        let path = PathBuf::from(OsStr::from_bytes(linux_execfn().to_bytes()));
        let path = env::current_dir().map(|folder| folder.join(&path)).unwrap_or(path);
        let mut args = env::args_os();
        let name = args.next().unwrap_or_else(|| path.clone().into_os_string());
        Self { path, name, args: args.collect() }
    }

    /// Starts the successor with these sockets. Returns the process and the channel to it, on which
    /// the sockets are announced.
    pub(super) fn start(
        &self,
        hello: &Hello,
        sockets: &[OwnedFd],
    ) -> anyhow::Result<(Child, UnixStream)> {
        let (ours, theirs) = UnixStream::pair().context("a channel to the successor")?;
        let files: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        send_files(&ours, &files).context("cannot pass the sockets to the successor")?;
        greet(&ours, hello)?;
        let names = hello.sockets.iter().map(|socket| match socket {
            PassedSocket::Runtime(_) => "runtime",
            PassedSocket::Control(_) => "control",
            PassedSocket::Http { .. } => "http",
        });
        let mut command = tokio::process::Command::new("/proc/self/exe");
        command.arg0("wharf").args(["proxy", "start-successor", "--names"]);
        command.arg(names.collect::<Vec<_>>().join(":")).arg("--").arg(&self.path);
        command.arg(&self.name).args(&self.args);
        // A new process group: a shell that waits for this process's job must not wait for the
        // successor.
        command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
        let child = command.spawn().context("cannot start /proc/self/exe")?;
        Ok((child, ours))
    }
}

/// Sends the first line of a hand-over.
pub(super) fn greet(mut channel: &UnixStream, hello: &Hello) -> anyhow::Result<()> {
    let line = serde_json::to_string(hello)? + "\n";
    channel.write_all(line.as_bytes()).context("cannot announce the sockets to the successor")
}

/// Becomes the successor of the proxy that started this process
#[derive(Args)]
pub(super) struct StartSuccessor {
    #[arg(long)]
    names: String,
    /// The program's path, its name, and its arguments
    #[arg(required = true, num_args = 2.., trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

impl StartSuccessor {
    pub(super) fn run(self) -> ExitCode {
        // Starting the program replaces standard input and the file descriptors after it.
        let channel = fcntl_dupfd_cloexec(io::stdin(), ASIDE);
        let Err(error) = self.become_successor();
        let reason = format!("{error:#}");
        eprintln!("wharf proxy: {reason}");
        if let Ok(channel) = channel {
            let line = serde_json::json!({ "failed": reason });
            // The predecessor may have ended.
            let _ = writeln!(UnixStream::from(channel), "{line}");
        }
        ExitCode::FAILURE
    }

    fn become_successor(&self) -> anyhow::Result<Infallible> {
        let [path, name, args @ ..] = &self.program[..] else {
            return Err(anyhow!("the program to start is missing"));
        };
        let received = receive_files(&io::stdin()).context("the sockets did not arrive")?;
        let mut sockets = received.map_err(|_| anyhow!("the sockets did not arrive"))?;
        sockets.push(io::stdin().as_fd().try_clone_to_owned()?);
        let (count, pid) = (sockets.len(), getpid().as_raw_pid().to_string());
        place(sockets).context("cannot place the sockets for the program")?;
        let mut command = Command::new(path);
        command.arg0(name).args(args).stdin(Stdio::null());
        command.env(COUNT, count.to_string()).env(PID, &pid);
        command.env(NAMES, format!("{}:{CHANNEL}", self.names));
        if env::var_os("WATCHDOG_PID").is_some() {
            command.env("WATCHDOG_PID", &pid);
        }
        let error = command.exec();
        Err(anyhow!("cannot start {}: {error}", path.display()))
    }
}

/// Leaves files open for the next program, at the file descriptors from which it reads them.
fn place(files: Vec<OwnedFd>) -> io::Result<()> {
    let after = FIRST + RawFd::try_from(files.len()).map_err(io::Error::other)?;
    let mut aside = Vec::new();
    for file in files {
        aside.push(fcntl_dupfd_cloexec(&file, after)?);
    }
    for (number, file) in (FIRST..).zip(aside) {
        let mut placed = fcntl_dupfd_cloexec(&file, number)?;
        if placed.as_raw_fd() != number {
            // A file that this process inherited and does not use.
            drop(wharf_mount::inherited::take(number)?);
            placed = fcntl_dupfd_cloexec(&file, number)?;
        }
        if placed.as_raw_fd() != number {
            return Err(io::Error::other(format!("file descriptor {number} is in use")));
        }
        fcntl_setfd(&placed, FdFlags::empty())?;
        // The next program owns the file.
        let _ = placed.into_raw_fd();
    }
    Ok(())
}
