//! Sockets that the process inherited, by the protocol of sd_listen_fds(3).

use std::{
    env,
    os::fd::{OwnedFd, RawFd},
};

use anyhow::{Context, ensure};
use rustix::process::getpid;

/// The file descriptor of the first socket.
pub(super) const FIRST: RawFd = 3;
/// The largest number of sockets that a proxy can use.
const MOST: RawFd = 16;

pub(super) const PID: &str = "LISTEN_PID";
pub(super) const COUNT: &str = "LISTEN_FDS";
pub(super) const NAMES: &str = "LISTEN_FDNAMES";

/// An inherited socket.
pub(super) struct Inherited {
    /// The name in LISTEN_FDNAMES.
    pub(super) name: String,
    pub(super) socket: OwnedFd,
}

/// Takes the inherited sockets; none if there are none, or if LISTEN_PID names another process.
pub(super) fn take() -> anyhow::Result<Vec<Inherited>> {
    let Ok(pid) = env::var(PID) else { return Ok(Vec::new()) };
    let Ok(count) = env::var(COUNT) else { return Ok(Vec::new()) };
    if pid.parse() != Ok(getpid().as_raw_pid()) {
        return Ok(Vec::new());
    }
    let count: RawFd = count.parse().with_context(|| format!("{COUNT}={count}"))?;
    ensure!((0..=MOST).contains(&count), "{COUNT}={count}: expected at most {MOST} sockets");
    let names = env::var(NAMES).unwrap_or_default();
    let mut names = names.split(':');
    (FIRST..FIRST + count)
        .map(|number| {
            let socket = wharf_mount::inherited::take(number)
                .with_context(|| format!("{COUNT}={count}: cannot use file descriptor {number}"))?;
            Ok(Inherited { name: names.next().unwrap_or_default().to_owned(), socket })
        })
        .collect()
}
