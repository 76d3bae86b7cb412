//! The thread that starts every child.
//!
//! A parent-death signal is sent when the *thread* that made the child ends, and libtest gives each
//! test its own. Children of this thread, which lives as long as the process, can be shared between
//! tests.

use std::{
    fs::File,
    io,
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        mpsc::{Sender, channel},
    },
};

/// Starts `command` in its own process group. It is killed when this process ends, however it ends.
pub(super) fn spawn(command: &Command, output: File) -> io::Result<Child> {
    static THREAD: OnceLock<Sender<Job>> = OnceLock::new();
    let mut command = guarded(command);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let (answer, child) = channel();
    THREAD.get_or_init(start).send(Job { command, answer }).map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}

struct Job {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

fn start() -> Sender<Job> {
    let (sender, jobs) = channel::<Job>();
    std::thread::Builder::new()
        .name("spawner".to_owned())
        .spawn(move || {
            for mut job in jobs {
                // The receiver blocks on the answer, so this never fails.
                let _ = job.answer.send(job.command.spawn());
            }
        })
        .expect("a test process can start one thread");
    sender
}

/// `command` under setpriv, since setting the signal between fork and exec would need unsafe code.
fn guarded(command: &Command) -> Command {
    use std::os::unix::process::CommandExt;
    let mut guarded = Command::new("setpriv");
    guarded.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => guarded.env(key, value),
            None => guarded.env_remove(key),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        guarded.current_dir(folder);
    }
    guarded.process_group(0);
    guarded
}
