//! `wharf proxy tap`: calls, as they pass.

use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};
use wharf_testkit::{
    client::Client,
    hook_server::{HookScript, HookServer},
    process::{Process, wait_for},
    runtime::{Reply, Then, message},
};

use crate::{
    proxy::register,
    proxy_explain::{create, run_pod, runtime, sandbox},
    proxy_generations::{Generations, version},
    support::{Bench, PATIENCE, WHARF},
};

/// A name that would clear the screen.
const EVIL: &str = "evil\u{1b}[2J";

fn tap(generations: &Generations, name: &str, flags: &[&str]) -> Process {
    let mut command = Command::new(WHARF);
    command.args(["proxy", "tap", "--control"]).arg(generations.control()).args(flags);
    Process::start(name, &command, generations.bench.folder.path()).unwrap()
}

/// Waits until a tap for people shows calls.
async fn is_open(tap: &mut Process) {
    let header = |line: &str| line.starts_with("TIME ").then_some(());
    tap.line(PATIENCE, "its header", header).await.unwrap();
}

async fn shows(tap: &mut Process, words: &[&str]) -> String {
    let is_it = |line: &str| words.iter().all(|word| line.contains(word)).then(|| line.to_owned());
    tap.line(PATIENCE, &format!("{words:?}"), is_it).await.unwrap()
}

fn objects(tap: &Process) -> Vec<Value> {
    let text = std::fs::read_to_string(tap.log()).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[tokio::test]
async fn calls_are_shown_with_what_they_are_about_and_how_long_they_took() {
    let bench = Bench::new();
    let runtime = runtime(&bench);
    let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::echo());
    register(&bench, &hooks, &["PreCreateContainer"]);
    let generations = Generations::before(bench, &runtime);
    let proxy = generations.start().await;
    let mut all = tap(&generations, "all", &[]);
    let flags = ["--namespace", "default", "--method", "createcontainer", "--count", "1"];
    let mut some = tap(&generations, "some", &flags);
    is_open(&mut all).await;
    is_open(&mut some).await;

    let client = Client::dial(&generations.socket()).await;
    version(&client).await.unwrap();
    run_pod(&client, sandbox("default", "web")).await;
    create(&client, EVIL).await.unwrap();
    let row = shows(&mut all, &["Version", "OK"]).await;
    assert_eq!(row.split_whitespace().skip(1).nth(1), Some("-"), "no pod is known: {row}");
    shows(&mut all, &["RunPodSandbox", "default/web", "OK"]).await;
    let row = shows(&mut all, &["CreateContainer", "default/web", "evil\\u{1b}[2J"]).await;
    let times = row.split_whitespace().filter(|word| word.ends_with("ms")).count();
    assert_eq!(times, 3, "in all, in hooks and in the runtime: {row}");
    assert!(!row.contains('\u{1b}'), "{row:?}");

    assert!(some.wait(PATIENCE).await.unwrap().success(), "one line is enough");
    let text = std::fs::read_to_string(some.log()).unwrap();
    let rows: Vec<_> = text.lines().skip(1).collect();
    assert!(rows.len() == 1 && rows[0].contains("CreateContainer"), "{text}");

    all.signal(Signal::INT).unwrap();
    assert_eq!(all.wait(PATIENCE).await.unwrap().code(), Some(0));
    assert!(proxy.stop(PATIENCE).await.unwrap().success());
}

#[tokio::test]
async fn streams_are_shown_at_both_ends_and_callers_that_leave_are_told_apart() {
    let bench = Bench::new();
    let runtime = runtime(&bench);
    runtime.answer(|method| match method.ends_with("/GetContainerEvents") {
        true => Reply::then(vec![message(b"")], Then::Never),
        false => Reply::default(),
    });
    let generations = Generations::before(bench, &runtime);
    let _proxy = generations.start().await;
    let mut tap = tap(&generations, "tap", &["-o", "json"]);
    let client = Client::dial(&generations.socket()).await;
    // It says nothing before the first call.
    let is_open = || async {
        version(&client).await.unwrap();
        (!objects(&tap).is_empty()).then_some(())
    };
    wait_for(PATIENCE, "a call", is_open).await.unwrap();
    let first = objects(&tap).remove(0);
    assert_eq!(first["method"], json!("/runtime.v1.RuntimeService/Version"));
    assert_eq!((&first["event"], &first["code"]), (&json!("call"), &json!("OK")));
    assert!(first["totalUs"].as_u64().unwrap() > 0 && first.get("hooksUs").is_none(), "{first}");

    let mut streams = JoinSet::new();
    let caller = Client::dial(&generations.socket()).await;
    let method = "/runtime.v1.RuntimeService/GetContainerEvents";
    streams.spawn(async move { caller.call(method, Vec::new()).await });
    let event = |name: &str| objects(&tap).into_iter().find(|it| it["event"] == name);
    let started = || async { event("stream-started") };
    let started = wait_for(PATIENCE, "the start", started).await.unwrap();
    assert!(started["method"] == method && started.get("code").is_none(), "{started}");
    streams.shutdown().await;
    let ended = || async { event("stream-ended") };
    let ended = wait_for(PATIENCE, "the end", ended).await.unwrap();
    assert_eq!((&ended["code"], &ended["clientDisconnected"]), (&json!("Canceled"), &json!(true)));
    tap.signal(Signal::TERM).unwrap();
    assert_eq!(tap.wait(PATIENCE).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_tap_follows_an_upgrade_and_says_when_the_proxy_is_gone() {
    let bench = Bench::new();
    let runtime = runtime(&bench);
    let generations = Generations::before(bench, &runtime);
    let mut old = generations.start().await;
    let mut tap = tap(&generations, "tap", &["--method", "Version"]);
    is_open(&mut tap).await;
    let successor = generations.upgrade().await;
    // The tap does not keep the old process.
    assert!(old.wait(PATIENCE).await.unwrap().success());
    shows(&mut tap, &["another process has taken over the proxy"]).await;
    let client = Client::dial(&generations.socket()).await;
    let is_followed = || async {
        version(&client).await.unwrap();
        std::fs::read_to_string(tap.log()).unwrap().contains(" Version ").then_some(())
    };
    wait_for(PATIENCE, "a call of the new process", is_followed).await.unwrap();
    successor.stop().await;
    assert_eq!(tap.wait(PATIENCE).await.unwrap().code(), Some(1));
    assert!(tap.tail().contains("the proxy stops"), "{}", tap.tail());
}

#[tokio::test]
async fn a_proxy_that_is_killed_or_not_there_is_told_of() {
    let bench = Bench::new();
    let runtime = runtime(&bench);
    let generations = Generations::before(bench, &runtime);
    let proxy = generations.start().await;
    let mut tap = tap(&generations, "tap", &[]);
    is_open(&mut tap).await;
    proxy.signal(Signal::KILL).unwrap();
    assert_eq!(tap.wait(PATIENCE).await.unwrap().code(), Some(1));
    assert!(tap.tail().contains("without a word: it was killed"), "{}", tap.tail());
    let mut late = self::tap(&generations, "late", &[]);
    assert_eq!(late.wait(PATIENCE).await.unwrap().code(), Some(1));
    assert!(late.tail().contains("no proxy answers at"), "{}", late.tail());
}

#[tokio::test]
async fn a_tap_ends_after_its_time() {
    let bench = Bench::new();
    let runtime = runtime(&bench);
    let generations = Generations::before(bench, &runtime);
    let _proxy = generations.start().await;
    let mut tap = tap(&generations, "tap", &["--for", "100ms"]);
    assert_eq!(tap.wait(PATIENCE).await.unwrap().code(), Some(0), "{}", tap.tail());
}

/// More than the socket and the queue of a tap hold.
const MANY: usize = 4000;

#[tokio::test]
async fn a_stopped_tap_holds_up_no_call_and_is_told_what_it_missed() {
    let bench = Bench::new();
    let runtime = runtime(&bench);
    let generations = Generations::before(bench, &runtime);
    let _proxy = generations.start().await;
    let mut tap = tap(&generations, "tap", &[]);
    is_open(&mut tap).await;
    tap.signal(Signal::STOP).unwrap();
    let client = Client::dial(&generations.socket()).await;
    let calls = async {
        for _ in 0..MANY {
            version(&client).await.unwrap();
        }
    };
    timeout(PATIENCE, calls).await.expect("calls do not wait for a tap");
    tap.signal(Signal::CONT).unwrap();
    let row = shows(&mut tap, &["-- ", " calls dropped"]).await;
    let dropped: usize = row.split(' ').nth(1).unwrap().parse().unwrap();
    let shown = || async {
        let text = std::fs::read_to_string(tap.log()).unwrap();
        let rows = text.lines().filter(|line| line.contains(" Version ")).count();
        (rows + dropped == MANY).then_some(())
    };
    wait_for(PATIENCE, "every call, shown or counted", shown).await.unwrap();
}
