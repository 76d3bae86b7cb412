//! Upgrades of the proxy during calls at a fixed rate: the longest wait of a call, and the memory
//! of the old process while a stream stays with it.

use std::{fs, os::unix::ffi::OsStrExt, path::Path, process::Command, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h2::{
    SendStream,
    client::{Builder, ResponseFuture},
};
use http::Request;
use prost::Message;
use tokio::{
    net::UnixStream,
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::{Instant, interval, sleep},
};
use wharf_testkit::client::Client;

use super::{Counts, calls, hooks, records, rig::Rig};
use crate::{report::Report, usage::Usage};

const RATE: f64 = 200.0;
const PODS: usize = 20;
const MEMBERS: usize = 4;
/// Pause before, between and after upgrades.
const PAUSE: Duration = Duration::from_secs(2);
/// Target for the longest wait of a call, in milliseconds.
const WAIT: f64 = 100.0;

/// Measures upgrades under load.
pub(super) async fn measure(binary: &Path, counts: &Counts, report: &mut Report) -> Result<()> {
    report.section(&format!("{} upgrades under {RATE} calls a second", counts.rounds));
    let rig = Rig::new(binary)?;
    let _runtime = rig.runtime(0).await?;
    let hook_server = rig.hook_server().await?;
    hooks::register(&rig.hooks(), &hook_server.socket)?;
    let proxy = rig.proxy("proxy")?;
    let maker = proxy.client().await?;
    let mut ids = Vec::new();
    for number in 0..PODS {
        ids.extend(records::make(&maker, number, MEMBERS).await?);
    }
    drop(maker);
    let client = Arc::new(Client::dial(&proxy.socket).await);
    let stream = Stream::open(&proxy.socket).await?;

    let (stop, stopped) = watch::channel(false);
    let mut load = JoinSet::new();
    load.spawn(call_by_the_clock(client, ids, stopped));
    let control = rig.path("state").join("control.sock");
    let mut took = Vec::new();
    for round in 0..counts.rounds {
        sleep(PAUSE).await;
        let begun = Instant::now();
        upgrade(binary, &control).await?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        if round == 0 {
            // The first process has only the stream left.
            sleep(PAUSE).await;
            let old = Usage::of(proxy.process.id()).context("the old process")?;
            report.show("old process with a stream, resident memory", mb(old.resident), "MB");
            report.show("old process with a stream, of its own", mb(old.anonymous), "MB");
        }
    }
    sleep(PAUSE).await;
    stop.send_replace(true);
    let waits = load.join_next().await.context("the load")???;
    drop(stream);
    end_all(binary, &rig);

    report.show("calls", waits.calls as f64, "");
    report.at_most("failed calls", waits.failed as f64, 0.0, "");
    report.at_most("longest wait of a call", waits.longest.as_secs_f64() * 1e3, WAIT, "ms");
    report.show("longest upgrade", took.into_iter().fold(0.0, f64::max), "ms");
    Ok(())
}

fn mb(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}

async fn upgrade(binary: &Path, control: &Path) -> Result<()> {
    let mut command = Command::new(binary);
    command.args(["proxy", "upgrade", "--control"]).arg(control);
    let done = spawn_blocking(move || command.output()).await??;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// Successors are not children of the bench.
fn end_all(binary: &Path, rig: &Rig) {
    let socket = rig.path("proxy.sock");
    let wanted = [binary.as_os_str().as_bytes(), socket.as_os_str().as_bytes()];
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let has = |word: &&[u8]| words.split(|byte| *byte == 0).any(|own| own == *word);
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw)
            && wanted.iter().all(has)
        {
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[derive(Default)]
struct Waits {
    calls: usize,
    failed: usize,
    longest: Duration,
}

/// Every other call is about a container, for which the hook server is called. Calls are sent at a
/// fixed rate, whether or not earlier ones were answered.
async fn call_by_the_clock(
    client: Arc<Client>,
    ids: Vec<String>,
    stopped: watch::Receiver<bool>,
) -> Result<Waits> {
    let (mut waits, mut answers) = (Waits::default(), JoinSet::new());
    let mut clock = interval(Duration::from_secs_f64(1.0 / RATE));
    for (number, id) in ids.iter().cycle().enumerate() {
        let due = clock.tick().await;
        if *stopped.borrow() {
            break;
        }
        let (method, message) = if number % 2 == 0 {
            let number = i64::try_from(number)?;
            (calls::UPDATE_CONTAINER, calls::update_container(id, number).encode_to_vec())
        } else {
            (calls::VERSION, calls::version().encode_to_vec())
        };
        let client = client.clone();
        answers.spawn(async move { (client.call(method, message).await, due.elapsed()) });
        while let Some(answer) = answers.try_join_next() {
            waits.count(answer?);
        }
    }
    while let Some(answer) = answers.join_next().await {
        waits.count(answer?);
    }
    Ok(waits)
}

impl Waits {
    fn count(&mut self, (answer, took): (Result<Bytes, tonic::Status>, Duration)) {
        self.calls += 1;
        self.longest = self.longest.max(took);
        if let Err(error) = answer {
            if self.failed == 0 {
                eprintln!("the first error: {error}");
            }
            self.failed += 1;
        }
    }
}

/// A call that does not end, like a stream of events.
struct Stream {
    _request: SendStream<Bytes>,
    _response: ResponseFuture,
    _connection: JoinSet<()>,
}

impl Stream {
    async fn open(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).await?;
        let (requests, connection) = Builder::new().handshake::<_, Bytes>(stream).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // It ends with the bench.
            let _ = connection.await;
        });
        let request =
            Request::post("http://localhost/runtime.v1.RuntimeService/GetContainerEvents")
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(())?;
        let (response, request) = requests.ready().await?.send_request(request, false)?;
        Ok(Self { _request: request, _response: response, _connection: tasks })
    }
}
