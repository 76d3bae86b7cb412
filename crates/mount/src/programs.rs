//! Runs external programs: fixed arguments, no shell, a minimal environment, a deadline.

use std::{
    ffi::{OsStr, OsString},
    io::{PipeReader, Read, pipe},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{Error, Result, sys};

/// Maximum bytes of output to keep: the end of the output has the cause of a failure.
const MAX_OUTPUT: usize = 2048;

/// Maximum wait for a killed program to end; one that waits for a broken disk never does.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// Upper limit of any deadline.
const MAX_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// Folders in which to find programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    folders: Vec<PathBuf>,
}

impl Programs {
    /// Searches these folders, in order.
    pub fn in_folders(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { folders: folders.into_iter().collect() }
    }

    /// Whether `program` is installed.
    pub fn has(&self, program: &str) -> bool {
        self.find(program).is_some()
    }

    fn find(&self, program: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file())
    }
}

/// The folders in this process's `PATH`, and the usual folders of system programs.
impl Default for Programs {
    fn default() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
        Self { folders: std::env::split_paths(&path).chain(usual).collect() }
    }
}

/// A program and its Debian package.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}

pub(crate) const MKFS_EXT4: Program = Program { name: "mkfs.ext4", package: "e2fsprogs" };
pub(crate) const E2FSCK: Program = Program { name: "e2fsck", package: "e2fsprogs" };
pub(crate) const E2UNDO: Program = Program { name: "e2undo", package: "e2fsprogs" };
pub(crate) const RESIZE2FS: Program = Program { name: "resize2fs", package: "e2fsprogs" };
pub(crate) const MKFS_XFS: Program = Program { name: "mkfs.xfs", package: "xfsprogs" };
pub(crate) const XFS_REPAIR: Program = Program { name: "xfs_repair", package: "xfsprogs" };

/// Result of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    program: Program,
    path: PathBuf,
    status: ExitStatus,
    /// The end of its output.
    pub(crate) output: String,
}

impl Outcome {
    /// Exit code; `None` if it was killed.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Converts any code but 0 into an error.
    pub(crate) fn success(self) -> Result<()> {
        if self.status.success() { Ok(()) } else { Err(self.error()) }
    }

    pub(crate) fn error(self) -> Error {
        let Self { program, path, status, output } = self;
        Error::Program { program: program.name, path, status, output }
    }
}

/// Runs `program` with `arguments` followed by `path`; kills it after `deadline`.
pub(crate) fn run<A: AsRef<OsStr>>(
    programs: &Programs,
    program: Program,
    arguments: impl IntoIterator<Item = A>,
    path: &Path,
    deadline: Duration,
) -> Result<Outcome> {
    let missing = || Error::MissingProgram { program: program.name, package: program.package };
    let found = programs.find(program.name).ok_or_else(missing)?;
    let arguments: Vec<OsString> = arguments.into_iter().map(|a| a.as_ref().to_owned()).collect();
    tracing::debug!(program = program.name, ?arguments, ?path, "running program");
    let until = Instant::now() + deadline.min(MAX_DEADLINE);
    let (mut child, output) =
        spawn(programs, &found, &arguments, path).map_err(Error::io("run", &found))?;
    let read = drain(output, until);
    let exited = read.is_some() && exits_until(&child, until);
    if !exited {
        let _ = child.kill();
        exits_until(&child, Instant::now() + KILL_WAIT);
        let _ = child.try_wait();
        let (operation, path) = (program.name, path.to_owned());
        return Err(Error::TimedOut { operation, path, waited: deadline });
    }
    let status = child.wait().map_err(Error::io("wait for", &found))?;
    let output = String::from_utf8_lossy(&read.unwrap_or_default()).trim().to_owned();
    Ok(Outcome { program, path: path.to_owned(), status, output })
}

fn spawn(
    programs: &Programs,
    found: &Path,
    arguments: &[OsString],
    path: &Path,
) -> std::io::Result<(Child, PipeReader)> {
    let (output, printed) = pipe()?;
    let mut command = Command::new(found);
    command
        .args(arguments)
        .arg(path)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", std::env::join_paths(&programs.folders).unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(printed.try_clone()?)
        .stderr(printed);
    sys::child::die_with_parent(&mut command);
    Ok((command.spawn()?, output))
}

/// Returns the end of the output when the program closes it, or `None` at the deadline.
fn drain(mut output: PipeReader, deadline: Instant) -> Option<Vec<u8>> {
    let mut tail = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if !ready_until(&output, deadline) {
            return None;
        }
        match output.read(&mut buffer) {
            Ok(0) => return Some(tail),
            Ok(length) => {
                tail.extend_from_slice(&buffer[..length]);
                tail.drain(..tail.len().saturating_sub(MAX_OUTPUT));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Some(tail),
        }
    }
}

fn exits_until(child: &Child, deadline: Instant) -> bool {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    match id.map(|id| pidfd_open(id, PidfdFlags::empty())) {
        Some(Ok(handle)) => ready_until(&handle, deadline),
        // Older kernels have no pidfd. The program has closed its output, so it is about to exit.
        _ => true,
    }
}

fn ready_until(file: &impl AsFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SCRIPT: Program = Program { name: "script", package: "none" };

    fn script(text: &str) -> (tempfile::TempDir, Programs) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let programs = Programs::in_folders([folder.path().to_owned(), "/bin".into()]);
        (folder, programs)
    }

    fn run_script(text: &str, deadline: Duration) -> Result<Outcome> {
        let (_folder, programs) = script(text);
        run(&programs, SCRIPT, ["-a"], Path::new("/some/device"), deadline)
    }

    #[test]
    fn the_end_of_what_it_prints_is_in_the_error() {
        let text = "yes x | head -n 5000; echo \"$@\" >&2; exit 3";
        let outcome = run_script(text, Duration::from_secs(60)).unwrap();
        assert_eq!(outcome.code(), Some(3));
        assert!(outcome.output.len() <= MAX_OUTPUT);
        let error = outcome.success().unwrap_err().to_string();
        assert!(error.starts_with("script failed on /some/device (exit status: 3)"), "{error}");
        assert!(error.ends_with("x\n-a /some/device"), "{error}");
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed() {
        let start = Instant::now();
        let error = run_script("exec sleep 600", Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_program_that_closed_its_output_is_killed_too() {
        let text = "exec >/dev/null 2>&1; exec sleep 600";
        let error = run_script(text, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    }

    #[test]
    fn no_deadline_is_too_long() {
        run_script("true", Duration::MAX).unwrap().success().unwrap();
    }

    #[test]
    fn its_environment_is_empty_but_for_two() {
        let outcome = run_script("env | sort", Duration::from_secs(60)).unwrap();
        let names: Vec<_> =
            outcome.output.lines().filter_map(|line| line.split('=').next()).collect();
        // The shell itself adds PWD, and some shells add more.
        assert!(names.contains(&"LC_ALL") && names.contains(&"PATH"), "{names:?}");
        assert!(!names.iter().any(|name| name.starts_with("CARGO")), "{names:?}");
    }

    #[test]
    fn a_missing_program_names_its_package() {
        let none = Programs::in_folders([]);
        let error =
            run(&none, MKFS_XFS, [""; 0], Path::new("/dev/null"), Duration::MAX).unwrap_err();
        assert_eq!(error.to_string(), "mkfs.xfs is not installed: install the package xfsprogs");
    }
}
