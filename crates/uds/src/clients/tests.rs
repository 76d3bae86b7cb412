use std::iter::repeat_with;

use tokio::time::{advance, timeout};
use tonic::Code;

use super::*;

const MANY: u32 = GIVEN_UP + 100;

fn give_up(client: &Client, count: u32) {
    let calls: Vec<_> = repeat_with(|| client.begin().unwrap()).take(count as usize).collect();
    calls.iter().for_each(ClientCall::give_up);
}

#[tokio::test(start_paused = true)]
async fn an_allowance_is_that_of_the_process_and_not_of_its_connection() {
    let clients = Clients::default();
    give_up(&clients.connect(Some(7)), GIVEN_UP);
    clients.connect(Some(7)).begin().unwrap().give_up();
    assert_eq!(clients.connect(Some(7)).begin().unwrap_err().code(), Code::ResourceExhausted);
    assert!(clients.connect(Some(8)).begin().is_ok());
    assert_eq!((clients.given_up(), clients.restraints()), (u64::from(GIVEN_UP) + 1, 1));
    advance(GIVEN_UP_EVERY).await;
    assert!(clients.connect(Some(7)).begin().is_ok());
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_answered_cost_nothing() {
    let client = Clients::default().connect(Some(7));
    for _ in 0..10 * CLIENT_CALLS {
        drop(client.begin().unwrap());
    }
    assert!(!client.is_restrained());
}

#[tokio::test(start_paused = true)]
async fn a_process_has_so_many_calls_under_way_and_no_more() {
    let clients = Clients::default();
    let begin = || clients.connect(Some(7)).begin();
    let mut calls: Vec<_> = repeat_with(|| begin().unwrap()).take(CLIENT_CALLS).collect();
    let refused = begin().unwrap_err();
    assert!(refused.message().contains("calls under way"), "{refused}");
    assert!(clients.connect(Some(8)).begin().is_ok());
    calls.pop();
    assert!(begin().is_ok());
}

#[tokio::test(start_paused = true)]
async fn new_connections_wait_a_bounded_time_and_few_of_them() {
    let clients = Clients::default();
    let client = clients.connect(Some(7));
    give_up(&client, MANY);
    let begun = Instant::now();
    let waits = async {
        let all = (0..WAITING + 5)
            .map(|_| clients.connect(Some(7)))
            .map(|client| async move { client.admitted().await });
        futures_util::future::join_all(all).await
    };
    let admitted = waits.await.into_iter().filter(|admitted| *admitted).count();
    assert_eq!(admitted, WAITING);
    assert_eq!(begun.elapsed().as_millis() / 10, GIVEN_UP_EVERY.as_millis() * 100 / 10);
    // The wait is bounded, no matter how many calls were given up.
    (0..100 * GIVEN_UP).for_each(|_| client.0.give_up());
    let waited = timeout(LONGEST_RESTRAINT + Duration::from_secs(1), client.admitted()).await;
    assert!(waited.is_ok());
    assert_eq!(clients.restraints(), 1, "one episode");
}

#[tokio::test(start_paused = true)]
async fn clients_without_a_name_wait_only_to_connect() {
    let clients = Clients::default();
    let client = clients.connect(Some(0));
    give_up(&client, MANY);
    assert!(clients.connect(None).is_restrained());
    assert!(client.begin().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_second_episode_begins_once_the_allowance_was_whole() {
    let clients = Clients::default();
    let client = clients.connect(Some(7));
    give_up(&client, MANY);
    advance(ALLOWANCE + GIVEN_UP_EVERY * 100).await;
    give_up(&client, MANY);
    assert_eq!(clients.restraints(), 2);
}

#[tokio::test(start_paused = true)]
async fn accounts_of_processes_that_left_are_dropped() {
    let clients = Clients::default();
    let count = || clients.accounts.lock().unwrap().by_process.len();
    let owing = clients.connect(Some(1));
    give_up(&owing, MANY);
    drop(owing);
    let connected = clients.connect(Some(2));
    for pid in 3..10_000 {
        drop(clients.connect(Some(pid)));
        assert!(count() <= 2 * FEW + 2, "{} accounts", count());
    }
    assert!(clients.connect(Some(1)).is_restrained());
    drop(connected);
    // Each process gave up one call.
    for pid in 10_000..20_000 {
        give_up(&clients.connect(Some(pid)), 1);
        assert!(count() <= MOST + FEW + 2, "{} accounts", count());
        if pid % 100 == 0 {
            advance(Duration::from_micros(1)).await;
        }
    }
    assert!(clients.connect(Some(1)).is_restrained(), "those that owe most are kept");
}
