//! Clients that ask for more than they may: the runtime hears little of it, and other clients
//! nothing.

use std::{future::pending, path::Path, process::Stdio};

use prost::Message;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::UnixStream,
    process::{Child, Command},
    task::JoinSet,
};
use wharf_proto::cri::StopPodSandboxRequest;
use wharf_testkit::{
    hostile::{self, ENHANCE_YOUR_CALM, Outcome},
    process,
    runtime::{Reply, Then, message},
};

use crate::{
    client::{Client, USUAL, VERSION, send, whole},
    fixture::{DEADLINE, Fixture, soon},
};

/// A method that hook servers are asked about, and one that is passed on.
const METHODS: [&str; 2] =
    ["/runtime.v1.RuntimeService/RunPodSandbox", "/runtime.v1.RuntimeService/Status"];
const STOP: &str = "/runtime.v1.RuntimeService/StopPodSandbox";
const RESETS: u32 = 200_000;
/// Header fields of 4 KiB of a call that is below the limit.
const FIELDS: usize = 15;
/// The most calls of a connection that are looked at before it is closed: resets, and calls in
/// flight.
const MOST: usize = 2048 + 1024;

/// Not a test: the attacker of others, in a process of its own.
#[tokio::test]
async fn attacking_process() {
    let Some((socket, attack)) = hostile::attacked() else { return };
    let [kind, method, number] = attack.split(' ').collect::<Vec<_>>()[..] else { panic!() };
    let number = number.parse().unwrap();
    let frames = match kind {
        "resets" => hostile::resets(method, RESETS, number),
        "bombs" => hostile::bombs(method, 200, 2000),
        "small-bombs" => hostile::bombs(method, 900, FIELDS),
        "headers" => {
            let _held = hold_headers(&socket, method).await;
            println!("held");
            return pending().await;
        }
        "messages" => {
            let _held = hold_messages(&socket, method).await;
            println!("held");
            return pending().await;
        }
        other => panic!("{other}"),
    };
    println!("{:?}", hostile::attack(&socket, &frames).await);
}

/// Begins calls with large and with small header lists, which last as long as the connections.
async fn hold_headers(socket: &Path, method: &str) -> Vec<UnixStream> {
    let mut held = Vec::new();
    for fields in [FIELDS, 1, 0] {
        held.push(hostile::hold(socket, &hostile::bombs(method, 300, fields)).await);
    }
    held
}

/// Begins two messages of 32 MiB and does not finish them: together they leave 2 MiB of the room
/// for all messages.
async fn hold_messages(socket: &Path, method: &str) -> impl Sized + use<> {
    let client = Client::dial(socket).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut begun = vec![0; 31 << 20];
        begun[1] = 2;
        let (response, mut sink) = client.open(method, USUAL).await;
        // This fails if the call is refused.
        let _ = send(&mut sink, begun.into(), false).await;
        held.push((response, sink));
    }
    // The answer comes after the server has read the messages.
    client.call(VERSION, message(b"")).await.unwrap();
    (client, held)
}

/// A process that holds calls of `method`, until this is dropped.
async fn holder(fixture: &Fixture, kind: &str, method: &str) -> Child {
    let attack = format!("{kind} {method} 0");
    let attacker = hostile::attacker("attacks::attacking_process", &fixture.socket(), &attack);
    let mut attacker = Command::from(attacker);
    let mut attacker = attacker.kill_on_drop(true).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(attacker.stdout.take().unwrap()).lines();
    let held = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.ends_with("held") {
                return;
            }
        }
        panic!("the attacker ended");
    };
    soon(held).await;
    attacker
}

/// Calls that are made beside the attack: it may take some of them until all that was sent is kept.
const BESIDE: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn header_lists_of_one_process_leave_room_for_those_of_others() {
    let (fixture, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|method| match method {
        VERSION => Reply::default(),
        _ => Reply::then(Vec::new(), Then::Never),
    });
    let _attacker = holder(&fixture, "headers", METHODS[1]).await;
    for _ in 0..BESIDE {
        let answer = client.call(VERSION, message(b"")).await.unwrap();
        assert_eq!(answer.status(), "0", "{}", answer.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_a_process_does_not_finish_leave_room_for_those_of_others() {
    let (fixture, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|_| Reply::default());
    let _attacker = holder(&fixture, "messages", METHODS[0]).await;
    let stop = StopPodSandboxRequest { pod_sandbox_id: "p".repeat(4 << 20) };
    for _ in 0..10 {
        let answer = client.call(STOP, message(&stop.encode_to_vec())).await.unwrap();
        assert_eq!(answer.status(), "0", "{}", answer.message());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_waited_for_until_the_callers_time_is_over() {
    let (_fixture, runtime, client) = Fixture::with_runtime().await;
    let (response, mut sink) = client.open(STOP, &[("grpc-timeout", b"50m")]).await;
    send(&mut sink, message(&[0; 64]).slice(..20), false).await.unwrap();
    let answer = whole(response).await.unwrap();
    assert_eq!(answer.status(), "4");
    assert!(answer.message().contains("time%20was%20over%20before"), "{}", answer.message());
    assert_eq!(runtime.calls().len(), 0);
}

/// Attacks while another client calls. Returns how it went, and how many calls the runtime got.
async fn attacked(kind: &str, method: &str, number: u32) -> (Outcome, usize) {
    let (fixture, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|method| match method {
        VERSION => Reply::default(),
        _ => Reply::then(Vec::new(), Then::Never),
    });
    let attack = format!("{kind} {method} {number}");
    let attacker = hostile::attacker("attacks::attacking_process", &fixture.socket(), &attack);
    let mut attack = JoinSet::new();
    attack.spawn(async move { process::output(&attacker, DEADLINE).await.unwrap() });
    let mut others = 0;
    let output = loop {
        assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0");
        others += 1;
        if let Some(output) = attack.try_join_next() {
            break output.unwrap();
        }
    };
    let printed = String::from_utf8(output.stdout).unwrap();
    let outcomes = [Outcome::Served, Outcome::Closed(Some(ENHANCE_YOUR_CALM))];
    let is =
        |outcome: &Outcome| printed.lines().any(|line| line.ends_with(&format!("{outcome:?}")));
    let outcome = outcomes.into_iter().find(is).unwrap_or_else(|| panic!("{printed}"));
    // The same client, and a new one.
    assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0");
    let answer = fixture.client().await.call(VERSION, message(b"")).await.unwrap();
    assert_eq!(answer.status(), "0");
    fixture.counts("wharf_proxy_calls_in_flight 0").await;
    (outcome, runtime.calls().len() - others - 2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_opens_calls_to_reset_them_is_sent_away() {
    for method in METHODS {
        for batch in [1, 500] {
            let (outcome, calls) = attacked("resets", method, batch).await;
            assert_eq!(outcome, Outcome::Closed(Some(ENHANCE_YOUR_CALM)), "{method} {batch}");
            assert!(calls <= MOST, "{method} {batch}: {calls} calls");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_headers_explode_is_sent_away() {
    for method in METHODS {
        let (outcome, calls) = attacked("bombs", method, 0).await;
        assert_eq!(outcome, Outcome::Closed(Some(ENHANCE_YOUR_CALM)), "{method}");
        assert!(calls <= 1, "{method}: {calls} calls");
    }
}

/// Each header list is below the limit, so the connection stands; all of them together are not.
#[tokio::test(flavor = "multi_thread")]
async fn header_lists_that_explode_a_little_have_a_bound_together() {
    let (outcome, calls) = attacked("small-bombs", METHODS[1], 0).await;
    assert_eq!(outcome, Outcome::Served);
    let bound = (1 << 20) / (FIELDS * 4096);
    assert!((bound / 2..=bound + 1).contains(&calls), "{calls} calls, the bound is {bound}");
}

/// Calls that are under way when their connection is closed.
const LEFT: u32 = 900;

/// The allowance is that of the process, whose other connections share it.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_given_up_by_closing_a_connection_restrain_the_process() {
    for method in METHODS {
        let (fixture, runtime, client) = Fixture::with_runtime().await;
        runtime.answer(|method| match method {
            VERSION => Reply::default(),
            _ => Reply::then(Vec::new(), Then::Never),
        });
        let calls = hostile::calls(method, LEFT, b"");
        let connection = soon(hostile::begin(&fixture.socket(), &calls)).await;
        runtime.seen(|calls| calls.len() == LEFT as usize).await;
        drop(connection);
        fixture.counts(&format!("wharf_proxy_calls_given_up_total {LEFT}")).await;
        fixture.counts("wharf_proxy_client_restraints_total 1").await;
        let refused = client.call(VERSION, message(b"")).await.unwrap();
        assert_eq!(refused.status(), "8", "{method}");
        // A new connection waits for the allowance, which all others have then, too.
        let other = fixture.client().await;
        let answer = soon(other.call(VERSION, message(b""))).await.unwrap();
        assert_eq!(answer.status(), "0", "{method}");
        assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0", "{method}");
        fixture.counts("wharf_proxy_calls_in_flight 0").await;
    }
}
