//! Hands over to a successor: a process that this one starts, or one that asks for its sockets.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream as StdStream,
    },
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, ensure};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use tokio::{
    net::UnixStream,
    signal::unix::{Signal as Hangups, SignalKind, signal},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use wharf_criproxy::{ControlAnswer, Followed, HandOver, Hello, PassedSocket, SuccessionRequest};
use wharf_uds::{LineCall, ListenerHandle, send_files};

use super::{
    notify::Notifier,
    sockets::passed,
    successor::{Program, greet},
};

/// Time that a successor which did not take over has to end.
const END: Duration = Duration::from_millis(200);

/// How long a successor that was killed may take to end.
const KILLED: Duration = Duration::from_secs(1);

/// Hands over to successors.
pub(super) struct Succession {
    pub(super) hand_over: HandOver,
    pub(super) listen: PathBuf,
    pub(super) control: PathBuf,
    pub(super) runtime_socket: ListenerHandle,
    pub(super) control_socket: ListenerHandle,
    /// The address and the socket of the HTTP endpoint.
    pub(super) http: Option<(String, OwnedFd)>,
    /// Cancelled once the successor owns the HTTP endpoint.
    pub(super) http_released: CancellationToken,
    pub(super) program: Program,
}

/// Requests for a successor.
pub(super) struct Requests {
    hangups: Hangups,
    questions: mpsc::Receiver<SuccessionRequest>,
}

impl Requests {
    /// Requests of the control socket, and SIGHUP, which no longer ends the process.
    pub(super) fn new(questions: mpsc::Receiver<SuccessionRequest>) -> io::Result<Self> {
        Ok(Self { hangups: signal(SignalKind::hangup())?, questions })
    }
}

impl Succession {
    /// Serves requests for a successor one after another, until a successor has taken over or
    /// `stop`.
    pub(super) async fn serve(
        self,
        notifier: &Notifier,
        Requests { mut hangups, mut questions }: Requests,
        stop: CancellationToken,
    ) -> Option<Followed> {
        loop {
            let request = tokio::select! {
                () = stop.cancelled() => return None,
                Some(()) = hangups.recv() => None,
                Some(request) = questions.recv() => Some(request),
            };
            let followed = match request {
                None => self.upgrade(notifier, &stop).await,
                Some(SuccessionRequest::Upgrade(answer)) => {
                    let upgraded = self.upgrade(notifier, &stop).await;
                    let said = match &upgraded {
                        Ok((pid, _)) => Ok(format!("process {pid} has taken over")),
                        Err(error) => Err(format!("{error:#}")),
                    };
                    // The client may have disconnected.
                    let _ = answer.send(said);
                    upgraded
                }
                Some(SuccessionRequest::TakeOver(call)) => self.give(call, notifier, &stop).await,
            };
            // `upgrade` has logged the error.
            if let Ok((pid, followed)) = followed {
                info!(pid, "another process has taken over, finishing calls");
                return Some(followed);
            }
        }
    }

    /// Starts a successor, and hands over to it.
    async fn upgrade(
        &self,
        notifier: &Notifier,
        stop: &CancellationToken,
    ) -> anyhow::Result<(u32, Followed)> {
        info!("starting a successor");
        notifier.reloading();
        let upgraded = self.start_and_hand_over(stop).await;
        match &upgraded {
            Ok((pid, _)) => notifier.replaced_by(*pid, "serving"),
            Err(error) => {
                let error = format!("{error:#}");
                error!(error, "upgrade failed, this process continues to serve");
                notifier.ready(&format!("upgrade failed: {error}"));
            }
        }
        upgraded
    }

    async fn start_and_hand_over(
        &self,
        stop: &CancellationToken,
    ) -> anyhow::Result<(u32, Followed)> {
        let (hello, sockets) = self.sockets()?;
        let (mut child, channel) = self.program.start(&hello, &sockets)?;
        drop(sockets);
        let pid = child.id().context("the successor has ended")?;
        let mut status = None;
        let end = async |has_to_end: bool| {
            // The status of a successor that ended by itself says why.
            if has_to_end || timeout(END, child.wait()).await.is_err() {
                let _ = child.start_kill();
            }
            // A killed process runs no more of its program, even while a hanging disk keeps it from
            // ending.
            status = match timeout(KILLED, child.wait()).await {
                Ok(ended) => ended.ok(),
                Err(_) => {
                    warn!(pid, "the successor is killed, and hangs in a system call");
                    None
                }
            };
        };
        let followed = self.hand_over(channel, end, stop).await;
        followed.map(|followed| (pid, followed)).with_context(|| match status {
            Some(status) => format!("the successor (process {pid}, {status}) did not take over"),
            None => format!("the successor (process {pid}) did not take over"),
        })
    }

    /// Hands over to the process that asks.
    async fn give(
        &self,
        call: LineCall,
        notifier: &Notifier,
        stop: &CancellationToken,
    ) -> anyhow::Result<(u32, Followed)> {
        let peer = call.peer();
        let pid = peer.pid.and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default();
        info!(pid, "another process asks to take over");
        if peer.uid != 0 && peer.uid != geteuid().as_raw() {
            let text =
                format!("only root and the proxy's own user may take over, not {}", peer.uid);
            warn!(pid, uid = peer.uid, "refused to hand over");
            let answer = ControlAnswer::Failed(text.clone());
            call.answer(serde_json::to_string(&answer).unwrap_or_default()).await;
            anyhow::bail!(text);
        }
        let given = self.give_to(call, pid, stop).await;
        match &given {
            Ok(_) => notifier.ready("another process has taken over: finishing calls"),
            Err(error) => {
                let error = format!("{error:#}");
                error!(pid, error, "take-over failed, this process continues to serve");
                notifier.ready(&format!("take-over failed: {error}"));
            }
        }
        given.map(|followed| (pid, followed))
    }

    async fn give_to(
        &self,
        call: LineCall,
        pid: u32,
        stop: &CancellationToken,
    ) -> anyhow::Result<Followed> {
        let (hello, sockets) = self.sockets()?;
        let channel = call.into_stream().into_std()?;
        let files: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        send_files(&channel, &files)?;
        greet(&channel, &hello)?;
        drop(sockets);
        let end = async |may_serve| {
            if may_serve {
                kill(pid);
            }
        };
        self.hand_over(channel, end, stop).await
    }

    async fn hand_over<E: Future<Output = ()>>(
        &self,
        channel: StdStream,
        end_successor: impl FnOnce(bool) -> E,
        stop: &CancellationToken,
    ) -> anyhow::Result<Followed> {
        channel.set_nonblocking(true)?;
        let channel = UnixStream::from_std(channel)?;
        let release = || {
            self.runtime_socket.stop_accepting();
            self.control_socket.release();
            self.http_released.cancel();
        };
        let handed_over = self.hand_over.run(channel, &self.listen, release, end_successor, stop);
        let followed = handed_over.await?;
        // Calls that waited here are sent to the successor, so connect to it only now.
        self.runtime_socket.release();
        Ok(followed)
    }

    /// The sockets, and their announcement.
    fn sockets(&self) -> anyhow::Result<(Hello, Vec<OwnedFd>)> {
        ensure!(
            self.runtime_socket.is_in_place(&self.listen),
            "{} was removed or replaced and no longer leads to this process: restart the proxy",
            self.listen.display()
        );
        let mut announced = vec![
            PassedSocket::Runtime(passed(&self.listen, &self.runtime_socket)),
            PassedSocket::Control(passed(&self.control, &self.control_socket)),
        ];
        let mut sockets = vec![self.runtime_socket.socket()?, self.control_socket.socket()?];
        if let Some((address, socket)) = &self.http {
            announced.push(PassedSocket::Http { address: address.clone() });
            sockets.push(socket.try_clone()?);
        }
        Ok((Hello::new(announced), sockets))
    }
}

/// Kills a process that may have begun to serve without reporting it.
fn kill(pid: u32) {
    let killed = i32::try_from(pid).ok().and_then(Pid::from_raw).map(|pid| {
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        pidfd_send_signal(process, Signal::KILL)
    });
    match killed {
        Some(Ok(())) => warn!(pid, "killed a successor that did not serve in time"),
        // The process has ended already.
        Some(Err(rustix::io::Errno::SRCH)) => {}
        Some(Err(error)) => error!(pid, %error, "failed to kill a successor that may serve"),
        None => error!("failed to kill a successor that may serve: unknown pid"),
    }
}
