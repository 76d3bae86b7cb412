//! A proxy that the test replaces: a link to its program, a service manager's socket, and
//! successors that end with the test.

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        net::UnixDatagram as StdDatagram,
    },
    path::{Path, PathBuf},
    process::{Command, Output},
};

use prost_reflect::prost::Message;
use rustix::{
    fd::OwnedFd,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use tokio::{net::UnixDatagram, time::timeout};
use tonic::Status;
use wharf_testkit::{
    client::Client,
    process::{Process, wait_for},
    runtime::Runtime,
};

use crate::{
    proxy::hook_folder,
    support::{Bench, PATIENCE, WHARF, wharf},
};

/// A proxy in the folder of a bench, under a path that can be led elsewhere.
pub(crate) struct Generations {
    pub(crate) bench: Bench,
    pub(crate) notified: Notified,
    /// The runtime's socket.
    runtime: PathBuf,
}

impl Generations {
    pub(crate) fn new(runtime: &Path) -> Self {
        Self::with(Bench::new(), runtime)
    }

    pub(crate) fn before(bench: Bench, runtime: &Runtime) -> Self {
        let path = runtime.path().to_owned();
        Self::with(bench, &path)
    }

    fn with(bench: Bench, runtime: &Path) -> Self {
        let notified = Notified::new(&bench.path("notify.sock"));
        symlink(WHARF, bench.path("program")).unwrap();
        Self { bench, notified, runtime: runtime.to_owned() }
    }

    /// Starts a proxy that serves.
    pub(crate) async fn start(&self) -> Process {
        let process = self.launch("proxy", &[], &[]);
        self.notified.until("READY=1").await;
        process
    }

    pub(crate) fn launch(&self, name: &str, flags: &[&str], variables: &[(&str, &str)]) -> Process {
        let mut command = Command::new(self.program());
        command.args(self.args()).args(flags).env("NOTIFY_SOCKET", self.bench.path("notify.sock"));
        command.envs(variables.iter().copied());
        Process::start(name, &command, self.bench.folder.path()).unwrap()
    }

    /// The arguments of a proxy.
    pub(crate) fn args(&self) -> Vec<String> {
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        let mut args: Vec<_> = ["proxy", "--listen"].map(str::to_owned).into();
        args.extend([text(self.socket()), "--runtime".to_owned(), text(self.runtime.clone())]);
        args.extend(["--state-dir".to_owned(), text(self.bench.path("state"))]);
        args.extend(["--hooks-dir".to_owned(), text(hook_folder(&self.bench))]);
        args.extend(["--http-endpoint", "127.0.0.1:0"].map(str::to_owned));
        args
    }

    /// Leads the program's path to a script.
    pub(crate) fn replace_program(&self, script: &str) {
        let draft = self.bench.path("draft");
        fs::write(&draft, script).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&draft, self.program()).unwrap();
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.bench.path("program")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.bench.path("proxy.sock")
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.bench.path("state/control.sock")
    }

    /// `wharf proxy upgrade`, to its end.
    pub(crate) async fn ask_for_upgrade(&self) -> Output {
        let control = self.control();
        tokio::task::spawn_blocking(move || {
            wharf(&["proxy", "upgrade", "--control", control.to_str().unwrap()])
        })
        .await
        .unwrap()
    }

    /// An upgrade that succeeds.
    pub(crate) async fn upgrade(&self) -> Successor {
        let output = self.ask_for_upgrade().await;
        assert!(output.status.success(), "{output:?}");
        let state = self.notified.until("MAINPID=").await;
        assert!(state.contains("READY=1"), "{state}");
        Successor::of(&state)
    }

    /// A call on a connection of its own.
    pub(crate) async fn call(&self) -> Result<(), Status> {
        version(&Client::dial(&self.socket()).await).await
    }
}

/// A call that no hook is about.
pub(crate) async fn version(client: &Client) -> Result<(), Status> {
    client.call("/runtime.v1.RuntimeService/Version", Vec::new()).await.map(drop)
}

/// A call by the name of its method.
pub(crate) async fn call<A: Message + Default>(
    client: &Client,
    method: &str,
    request: &impl Message,
) -> Result<A, Status> {
    let method = format!("/runtime.v1.RuntimeService/{method}");
    let answer = client.call(&method, request.encode_to_vec()).await?;
    A::decode(answer).map_err(|error| Status::internal(error.to_string()))
}

/// The socket of a service manager.
pub(crate) struct Notified(UnixDatagram);

impl Notified {
    fn new(path: &Path) -> Self {
        let socket = StdDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(UnixDatagram::from_std(socket).unwrap())
    }

    /// The next state that holds this.
    pub(crate) async fn until(&self, wanted: &str) -> String {
        let found = async {
            loop {
                let state = self.next().await;
                if state.contains(wanted) {
                    return state;
                }
            }
        };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("not told of {wanted}"))
    }

    pub(crate) async fn next(&self) -> String {
        let mut state = [0; 4096];
        let received = timeout(PATIENCE, self.0.recv(&mut state)).await;
        let length = received.expect("the service manager is told something").unwrap();
        String::from_utf8(state[..length].to_vec()).unwrap()
    }

    /// Whether nothing is left to be read.
    pub(crate) fn is_silent(&self) -> bool {
        self.0.try_recv(&mut [0; 4096]).is_err()
    }
}

/// A successor, which is no child of the test. Killed when it is dropped.
pub(crate) struct Successor {
    pub(crate) pid: Pid,
    process: OwnedFd,
}

impl Successor {
    /// That of which the service manager is told.
    fn of(state: &str) -> Self {
        let pid = state.lines().find_map(|line| line.strip_prefix("MAINPID=")).unwrap();
        Self::with_pid(pid.parse().unwrap())
    }

    pub(crate) fn with_pid(pid: i32) -> Self {
        let pid = Pid::from_raw(pid).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        Self { pid, process }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.process, signal).unwrap();
    }

    /// Waits for its end. Nobody collects it but its parent, or whoever adopts it.
    pub(crate) async fn ended(&self) {
        let status = format!("/proc/{}/stat", self.pid.as_raw_pid());
        let is_gone = || async {
            let Ok(text) = fs::read(&status) else { return Some(()) };
            let text = text.rsplit(|byte| *byte == b')').next().unwrap_or_default().to_vec();
            text.starts_with(b" Z").then_some(())
        };
        wait_for(PATIENCE, "the end of a successor", is_gone).await.unwrap();
    }

    /// Asks it to end.
    pub(crate) async fn stop(self) {
        self.signal(Signal::TERM);
        self.ended().await;
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}

/// The processes that run a program at this path.
pub(crate) fn processes_of(program: &Path) -> Vec<i32> {
    let is_its = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == program.as_os_str().as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_its).collect()
}
