//! Clients that ask for more than they may: the runtime hears little of it, and other clients nothing.

use tokio::task::JoinSet;
use wharf_testkit::hostile::{self, ENHANCE_YOUR_CALM, Outcome};
use wharf_testkit::runtime::{Reply, Then, message};

use crate::bench::{Bench, soon};
use crate::client::VERSION;

/// A method that hook servers are asked about, and one that is passed on.
const METHODS: [&str; 2] =
    ["/runtime.v1.RuntimeService/RunPodSandbox", "/runtime.v1.RuntimeService/Status"];
const RESETS: u32 = 200_000;
/// The most calls of a connection that are looked at before it is closed: resets, and calls in flight.
const MOST: usize = 2048 + 1024;

/// Attacks with `frames` while another client calls. Returns how it went, and how many calls the runtime got.
async fn attacked(frames: Vec<u8>) -> (Outcome, usize) {
    let (bench, runtime, client) = Bench::with_runtime().await;
    runtime.answer(|method| match method {
        VERSION => Reply::default(),
        _ => Reply::then(Vec::new(), Then::Never),
    });
    let (socket, mut attack) = (bench.socket(), JoinSet::new());
    attack.spawn(async move { soon(hostile::attack(&socket, &frames)).await });
    let mut others = 0;
    let outcome = loop {
        assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0");
        others += 1;
        if let Some(outcome) = attack.try_join_next() {
            break outcome.unwrap();
        }
    };
    // The same client, and a new one.
    assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0");
    let answer = bench.client().await.call(VERSION, message(b"")).await.unwrap();
    assert_eq!(answer.status(), "0");
    bench.counts("wharf_proxy_calls_in_flight 0").await;
    (outcome, runtime.calls().len() - others - 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_opens_calls_to_reset_them_is_sent_away() {
    for method in METHODS {
        for batch in [1, 500] {
            let (outcome, calls) = attacked(hostile::resets(method, RESETS, batch)).await;
            assert_eq!(outcome, Outcome::Closed(Some(ENHANCE_YOUR_CALM)), "{method} {batch}");
            assert!(calls <= MOST, "{method} {batch}: {calls} calls");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_headers_explode_is_sent_away() {
    for method in METHODS {
        let (outcome, calls) = attacked(hostile::bombs(method, 200, 2000)).await;
        assert_eq!(outcome, Outcome::Closed(Some(ENHANCE_YOUR_CALM)), "{method}");
        assert!(calls <= 1, "{method}: {calls} calls");
    }
}

/// Each header list is below the limit, so the connection stands; all of them together are not.
#[tokio::test(flavor = "multi_thread")]
async fn header_lists_that_explode_a_little_have_a_bound_together() {
    const FIELDS: usize = 15;
    let (outcome, calls) = attacked(hostile::bombs(METHODS[1], 900, FIELDS)).await;
    assert_eq!(outcome, Outcome::Served);
    let bound = (4 << 20) / (FIELDS * 4096);
    assert!((bound / 2..=bound + 1).contains(&calls), "{calls} calls, the bound is {bound}");
}
