//! Clients that attack `wharf proxy`: its memory stays small, and others are served.

use wharf_testkit::{
    client::Client,
    hostile::{ENHANCE_YOUR_CALM, Outcome, attack, bombs, resets},
    runtime::Reply,
};

use crate::{
    proxy::{recording, start},
    support::Bench,
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

#[tokio::test(flavor = "multi_thread")]
async fn attacks_take_little_memory() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    runtime.answer(|_| Reply::default());
    let (proxy, socket) = start(&bench, runtime.path()).await;
    let client = Client::dial(&socket).await;
    client.call(STATUS, Vec::new()).await.unwrap();

    let before = peak(proxy.id());
    for frames in [resets(STATUS, RESETS, 1), resets(STATUS, RESETS, 500), bombs(STATUS, 200, 2000)]
    {
        let outcome = attack(&socket, &frames).await;
        assert_eq!(outcome, Outcome::Closed(Some(ENHANCE_YOUR_CALM)));
        client.call(STATUS, Vec::new()).await.unwrap();
    }
    // Each of these is allowed; all of them together are not.
    assert_eq!(attack(&socket, &bombs(STATUS, 900, 15)).await, Outcome::Served);
    client.call(STATUS, Vec::new()).await.unwrap();
    let more = peak(proxy.id()) - before;
    assert!(more < MEMORY, "{more} kB more than before");
}
