//! Child processes that end with their parent.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the kernel kill the child when the thread that spawns it ends, for any reason.
///
/// A `mkfs` that survived a crash would write to a device that the restarted driver uses. The
/// spawning thread must wait for the child itself.
pub(crate) fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the line above.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec the closure makes three system calls, and neither allocates
    // nor takes a lock.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn the_child_dies_with_the_thread_that_spawned_it() {
        let spawn = || {
            let mut command = Command::new("sleep");
            die_with_parent(command.arg("60"));
            command.spawn().unwrap()
        };
        let mut child = std::thread::spawn(spawn).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }
}
