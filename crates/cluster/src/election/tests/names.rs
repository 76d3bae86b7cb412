//! Renewals by replicas with equal names.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_is_known_again() {
    let api = FakeLease::new();
    let mut leader = Replica::start(&api, "a");
    leader.leads().await;
    api.lose_answers(true);
    sleep(SECOND * 7).await;
    api.lose_answers(false);
    let renewed = api.lease();
    sleep(SECOND * 11).await;
    assert!(*leader.leading.borrow(), "its own renewal was taken for that of another");
    assert_ne!(api.lease().renew_time(), renewed.renew_time());
}

/// The view of two replicas with equal names.
#[tokio::test(start_paused = true)]
async fn a_renewal_by_another_of_the_same_name_is_a_loss() {
    let api = FakeLease::new();
    let mut leader = Replica::start(&api, "a");
    leader.leads().await;
    api.put(foreign("a", 15));
    let lost = leader.outcome().await.unwrap_err().to_string();
    assert!(lost.ends_with("is lost: another process of the name a holds it now"), "{lost}");
}
