//! What the service manager is told, by the protocol of sd_notify(3).

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

/// Tells the service manager the state of the process. Without one nothing is told.
pub(super) struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// By the variable NOTIFY_SOCKET.
    pub(super) fn from_env() -> Self {
        let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Self(None);
        };
        match connect(&path) {
            Ok(socket) => Self(Some(socket)),
            Err(error) => {
                let path = path.display();
                warn!(%path, %error, "cannot notify the service manager: NOTIFY_SOCKET");
                Self(None)
            }
        }
    }

    /// The process serves.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Another process serves, and is the service from now on.
    pub(super) fn replaced_by(&self, pid: u32, status: &str) {
        self.tell(&format!("MAINPID={pid}\nREADY=1\nSTATUS={}", one_line(status)));
    }

    /// The process is about to be replaced.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::try_from(now).unwrap_or_default().as_micros();
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now}"));
    }

    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=finishing calls");
    }

    /// The process serves still.
    pub(super) fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, state: &str) {
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
    // Whoever reads is quick, or is not there.
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// A state is one line.
fn one_line(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), " ")
}

/// How often the service manager wants to hear that the process is alive: twice as often as the variable WATCHDOG_USEC
/// says, if it is meant for this process.
pub(super) fn watchdog() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let own = u64::try_from(getpid().as_raw_pid()).ok();
    if env::var_os("WATCHDOG_PID").is_some() && number("WATCHDOG_PID") != own {
        return None;
    }
    let limit = number("WATCHDOG_USEC").filter(|limit| *limit > 1)?;
    Some(Duration::from_micros(limit / 2))
}
