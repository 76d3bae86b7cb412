//! Clients that attack `wharf proxy`: its memory stays small, and other clients are served.

use std::time::Duration;

use wharf_testkit::{
    client::Client,
    hostile::{
        ENHANCE_YOUR_CALM, Outcome, attack, attacked, attacker, bombs, calls, leave, resets,
    },
    process::{self, wait_for},
    runtime::{Reply, Then},
};

use crate::{
    proxy::{recording, start},
    support::{Bench, PATIENCE},
};

const STATUS: &str = "/runtime.v1.RuntimeService/Status";
const RESETS: u32 = 200_000;
/// The most memory that attacks may take at any time, in kB.
const MEMORY: u64 = 64 << 10;

/// The most memory that the process had so far, in kB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_take_little_memory() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    runtime.answer(|_| Reply::default());
    let (proxy, socket) = start(&bench, runtime.path()).await;
    let client = Client::dial(&socket).await;
    client.call(STATUS, Vec::new()).await.unwrap();

    let before = peak(proxy.id());
    let closed = Outcome::Closed(Some(ENHANCE_YOUR_CALM));
    // Each of the last is allowed; all of them together are not.
    let attacks = [
        ("single", closed),
        ("batches", closed),
        ("bombs", closed),
        ("small-bombs", Outcome::Served),
    ];
    for (kind, expected) in attacks {
        let attacker = attacker("proxy_attacks::attacking_process", &socket, kind);
        let output = process::output(&attacker, PATIENCE).await.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(&format!("{expected:?}")), "{kind}: {printed}");
        client.call(STATUS, Vec::new()).await.unwrap();
    }
    client.call(STATUS, Vec::new()).await.unwrap();
    let more = peak(proxy.id()) - before;
    assert!(more < MEMORY, "{more} kB more than before");
}

const LIST: &str = "/runtime.v1.RuntimeService/ListContainers";
/// Calls under way when the attacker closes a connection.
const UNDER_WAY: u32 = 900;
const ATTACK: Duration = Duration::from_secs(3);
/// The most calls of the attacker that may reach the runtime: what a process may have under way,
/// what it may give up at once, and 100 a second.
const MOST: usize = 2048 + 512 + 3 * 100;

/// Not a test: the attacker of the others, in a process of its own.
#[tokio::test]
async fn attacking_process() {
    let Some((socket, kind)) = attacked() else { return };
    let frames = match kind.as_str() {
        "single" => resets(STATUS, RESETS, 1),
        "batches" => resets(STATUS, RESETS, 500),
        "bombs" => bombs(STATUS, 200, 2000),
        "small-bombs" => bombs(STATUS, 900, 15),
        _ => {
            leave(&socket, &calls(LIST, UNDER_WAY, b""), ATTACK).await;
            return;
        }
    };
    println!("{:?}", attack(&socket, &frames).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_its_calls_and_connects_again_is_held_back() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    runtime.answer(|method| match method {
        LIST => Reply::then(Vec::new(), Then::Never),
        _ => Reply::default(),
    });
    let (proxy, socket) = start(&bench, runtime.path()).await;
    let client = Client::dial(&socket).await;
    client.call(STATUS, Vec::new()).await.unwrap();

    let (before, open) = (peak(proxy.id()), descriptors(proxy.id()));
    let attacker = attacker("proxy_attacks::attacking_process", &socket, "leave");
    let mut attack = std::pin::pin!(process::output(&attacker, PATIENCE));
    let ended = loop {
        tokio::select! {
            ended = &mut attack => break ended.unwrap(),
            answer = client.call(STATUS, Vec::new()) => drop(answer.unwrap()),
        }
    };
    assert!(ended.status.success(), "{ended:?}");
    let closed = async || (descriptors(proxy.id()) <= open).then_some(());
    wait_for(PATIENCE, "the attacker's connections to be closed", closed).await.unwrap();
    let reached = runtime.calls().iter().filter(|call| call.method == LIST).count();
    assert!((UNDER_WAY as usize..=MOST).contains(&reached), "{reached} calls reached the runtime");
    // Another client, and this one.
    Client::dial(&socket).await.call(STATUS, Vec::new()).await.unwrap();
    let more = peak(proxy.id()) - before;
    assert!(more < MEMORY, "{more} kB more than before");
}
