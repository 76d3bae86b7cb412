//! Reports the state of the process to the service manager, by the protocol of sd_notify(3).

use std::{
    env,
    ffi::OsStr,
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::Duration,
};

use rustix::{
    process::getpid,
    time::{ClockId, clock_gettime},
};
use tracing::{debug, warn};

/// Reports the state of the process to the service manager, if there is one.
pub(super) struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// The notifier for the socket in NOTIFY_SOCKET.
    pub(super) fn from_env() -> Self {
        let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Self(None);
        };
        match connect(&path) {
            Ok(socket) => Self(Some(socket)),
            Err(error) => {
                let path = path.display();
                warn!(socket = %path, %error, "failed to open the service manager's NOTIFY_SOCKET");
                Self(None)
            }
        }
    }

    /// Reports that the process serves.
    pub(super) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that another process serves, and is the service's main process from now on.
    pub(super) fn replaced_by(&self, pid: u32, status: &str) {
        self.send(&format!("MAINPID={pid}\nREADY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that the process is about to be replaced.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::try_from(now).unwrap_or_default().as_micros();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    pub(super) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing calls");
    }

    /// Reports to the watchdog that the process serves.
    pub(super) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, state: &str) {
        let Some((socket, address)) = &self.0 else { return };
        match socket.send_to_addr(state.as_bytes(), address) {
            Ok(_) => debug!(state, "notified the service manager"),
            Err(error) => warn!(state, %error, "failed to notify the service manager"),
        }
    }
}

fn connect(path: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    // The service manager reads at once, or does not run.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// Replaces control characters, because a state is one line.
fn one_line(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), " ")
}

/// The interval of watchdog reports: half of WATCHDOG_USEC, if WATCHDOG_PID is unset or names this
/// process.
pub(super) fn watchdog() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let own = u64::try_from(getpid().as_raw_pid()).ok();
    if env::var_os("WATCHDOG_PID").is_some() && number("WATCHDOG_PID") != own {
        return None;
    }
    let limit = number("WATCHDOG_USEC").filter(|limit| *limit > 1)?;
    Some(Duration::from_micros(limit / 2))
}
