//! `wharf proxy --take-over`, and the death of either process at each step of a hand-over: one of
//! them serves.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    process::Command,
};

use rustix::process::Signal;
use serde_json::{Value, json};
use wharf_testkit::{
    client::Client,
    process::{Process, wait_for},
};
use wharf_uds::{begin_ask, receive_files, send_files};

use crate::{
    proxy::recording,
    proxy_generations::{Generations, version},
    support::{Bench, PATIENCE},
};

/// The other end of a hand-over.
struct Other {
    lines: BufReader<UnixStream>,
    _sockets: Vec<OwnedFd>,
}

impl Other {
    fn with(stream: UnixStream, sockets: Vec<OwnedFd>) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { lines: BufReader::new(stream), _sockets: sockets }
    }

    /// Asks a running proxy for its sockets, as a successor does.
    fn ask(control: &Path) -> (Self, Value) {
        let stream = begin_ask(control, "\"take_over\"", PATIENCE).unwrap();
        let sockets = receive_files(&stream).unwrap().unwrap();
        let mut other = Self::with(stream, sockets);
        let hello = other.next().unwrap();
        (other, hello)
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.lines.get_mut(), "{message}").unwrap();
    }

    /// The next line, unless the other end is gone.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
        }
    }

    fn until(&mut self, wanted: &str) {
        while self.next().unwrap_or_else(|| panic!("the end before {wanted}")) != json!(wanted) {}
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test]
async fn a_process_takes_over_from_another() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let mut old = generations.start().await;
    let held = Client::dial(&generations.socket()).await;
    version(&held).await.unwrap();
    let new = generations.launch("new", &["--take-over"], &[]);
    generations.notified.until("READY=1\nSTATUS=serving").await;
    assert!(old.wait(PATIENCE).await.unwrap().success());
    version(&held).await.unwrap();
    generations.call().await.unwrap();
    assert!(new.stop(PATIENCE).await.unwrap().success());
    assert!(!generations.socket().exists());
}

#[tokio::test]
async fn where_nobody_runs_there_is_nothing_to_take_over() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let first = generations.launch("first", &["--take-over"], &[]);
    generations.notified.until("READY=1").await;
    generations.call().await.unwrap();
    drop(first);
    let _second = generations.launch("second", &["--take-over"], &[]);
    generations.notified.until("READY=1").await;
    generations.call().await.unwrap();
}

#[tokio::test]
async fn a_proxy_for_another_socket_takes_nothing() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let _old = generations.start().await;
    let args = generations.args();
    let other = generations.bench.path("other.sock");
    let args = args
        .iter()
        .map(|arg| if arg.ends_with("proxy.sock") { other.to_str().unwrap() } else { arg });
    let mut command = Command::new(generations.program());
    command.args(args).arg("--take-over");
    let mut new = Process::start("new", &command, generations.bench.folder.path()).unwrap();
    assert!(!new.wait(PATIENCE).await.unwrap().success());
    let said = new.tail();
    assert!(said.contains("proxy.sock") && said.contains("other.sock"), "{said}");
    generations.call().await.unwrap();
}

/// What a successor does before it dies, in the order of the hand-over.
#[tokio::test]
async fn the_old_process_serves_on_if_the_new_one_dies_at_any_step() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let old = generations.start().await;
    let control = generations.control();
    for step in 0..4 {
        let control = control.clone();
        blocking(move || {
            let (mut other, hello) = Other::ask(&control);
            assert_eq!(hello["protocol"], 1, "{hello}");
            if step > 0 {
                other.say(&json!({ "ready": { "protocol": 1 } }));
                other.until("all");
            }
            if step > 1 {
                other.say(&json!("loaded"));
            }
            if step > 2 {
                other.until("yours");
            }
        })
        .await;
        generations.notified.until("STATUS=take-over failed").await;
        generations.call().await.unwrap();
        // One that is intercepted.
        let client = Client::dial(&generations.socket()).await;
        client.call("/runtime.v1.RuntimeService/StopContainer", &b"\x0a\x01c"[..]).await.unwrap();
    }
    assert!(old.stop(PATIENCE).await.unwrap().success());
    assert!(!generations.socket().exists(), "it was the old one's all the time");
}

#[tokio::test]
async fn a_successor_that_speaks_another_protocol_or_fails_is_named() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let _old = generations.start().await;
    let cases = [
        (json!({ "ready": { "protocol": 7 } }), "version 7"),
        (json!({ "failed": "no folder of hook servers" }), "no folder of hook servers"),
        (json!("serving"), "does not follow the protocol"),
    ];
    for (message, reason) in cases {
        let control = generations.control();
        let last = blocking(move || {
            let (mut other, _) = Other::ask(&control);
            other.say(&message);
            other.next()
        });
        let last = last.await.unwrap_or_default();
        assert!(last["abort"].as_str().is_some_and(|text| text.contains(reason)), "{last}");
        let state = generations.notified.until("STATUS=take-over failed").await;
        assert!(state.contains(reason), "{state}");
        generations.call().await.unwrap();
    }
}

/// An old process that dies at each step leaves its sockets to the new one.
#[tokio::test]
async fn the_new_process_serves_if_the_old_one_dies_at_any_step() {
    for step in 0..4 {
        let bench = Bench::new();
        let runtime = recording(&bench);
        let generations = Generations::before(bench, &runtime);
        std::fs::create_dir(generations.bench.path("state")).unwrap();
        let control = UnixListener::bind(generations.control()).unwrap();
        let listening = UnixListener::bind(generations.socket()).unwrap();
        let hello = json!({ "protocol": 1, "sockets": [
            { "runtime": passed(&generations.socket()) },
            { "control": passed(&generations.control()) },
        ] });
        let new = generations.launch("new", &["--take-over"], &[]);
        let call =
            json!({ "busy": { "call": 7, "scope": { "container": { "id": "c", "pod": null } } } });
        blocking(move || {
            let (mut stream, _) = control.accept().unwrap();
            let mut question = [0; 12];
            stream.read_exact(&mut question).unwrap();
            send_files(&stream, &[listening.as_fd(), control.as_fd()]).unwrap();
            let mut other = Other::with(stream, Vec::new());
            other.say(&hello);
            if step == 0 {
                return;
            }
            assert_eq!(other.next().unwrap(), json!({ "ready": { "protocol": 1 } }));
            other.say(&call);
            if step == 1 {
                return;
            }
            other.say(&json!("all"));
            other.until("loaded");
            if step == 2 {
                return;
            }
            other.say(&json!("yours"));
            other.until("serving");
        })
        .await;
        generations.notified.until("READY=1").await;
        generations.call().await.unwrap();
        let client = Client::dial(&generations.socket()).await;
        client.call("/runtime.v1.RuntimeService/StopContainer", &b"\x0a\x01c"[..]).await.unwrap();
        assert!(new.stop(PATIENCE).await.unwrap().success());
    }
}

fn passed(path: &Path) -> Value {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(path).unwrap();
    json!({ "path": path, "device": file.dev(), "inode": file.ino(), "remove": true })
}

/// Waits for a line of a process that may end meanwhile.
async fn said<T>(process: &Process, wanted: impl Fn(&str) -> Option<T>) -> T {
    let log = || {
        let text = std::fs::read_to_string(process.log()).unwrap();
        std::future::ready(text.lines().find_map(&wanted))
    };
    wait_for(PATIENCE, "a line of the log", log).await.unwrap()
}

#[tokio::test]
async fn somebody_serves_when_the_old_process_is_killed_in_between() {
    for _ in 0..3 {
        let bench = Bench::new();
        let runtime = recording(&bench);
        let generations = Generations::before(bench, &runtime);
        let old = generations.start().await;
        let new = generations.launch("new", &["--take-over"], &[]);
        let asked = |line: &str| line.contains("asks to take over").then_some(());
        said(&old, asked).await;
        old.signal(Signal::KILL).unwrap();
        generations.notified.until("READY=1").await;
        generations.call().await.unwrap();
        assert!(new.stop(PATIENCE).await.unwrap().success());
    }
}

#[tokio::test]
async fn somebody_serves_when_the_new_process_is_killed_in_between() {
    for _ in 0..3 {
        let bench = Bench::new();
        let runtime = recording(&bench);
        let generations = Generations::before(bench, &runtime);
        let old = generations.start().await;
        let mut new = generations.launch("new", &["--take-over"], &[]);
        let asked = |line: &str| line.contains("asks to take over").then_some(());
        said(&old, asked).await;
        new.signal(Signal::KILL).unwrap();
        new.wait(PATIENCE).await.unwrap();
        let outcome = |line: &str| {
            let failed = line.contains("take-over failed");
            (failed || line.contains("another process has taken over")).then_some(failed)
        };
        let failed = said(&old, outcome).await;
        // A process that dies once it serves is replaced as any is that dies.
        let next = (!failed).then(|| generations.launch("next", &[], &[]));
        if next.is_some() {
            generations.notified.until("READY=1\nSTATUS=serving").await;
        }
        generations.call().await.unwrap();
    }
}
