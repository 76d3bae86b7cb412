use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;
use tokio::sync::oneshot;
use tonic::Code;
use wharf_proto::csi::DeleteVolumeRequest;

use super::*;
use crate::locks::Key;

fn delete(id: &str) -> (Identity, Claims) {
    let message = DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    let claims = Claims::default().exclusive(Key::Volume(id.into()));
    (Identity::of("DeleteVolume", &message), claims)
}

fn expand(id: &str) -> (Identity, Claims) {
    (Identity { rpc: "ControllerExpandVolume", ..delete(id).0 }, delete(id).1)
}

/// An operation that runs until the test sends its result.
fn held() -> (oneshot::Sender<u32>, impl Future<Output = Result<u32, Status>>) {
    let (sender, receiver) = oneshot::channel();
    (sender, async { receiver.await.map_err(|_| Status::internal("dropped")) })
}

#[tokio::test]
async fn the_same_request_joins_and_another_is_aborted() {
    let operations = Operations::default();
    let (finish, work) = held();
    let (identity, claims) = delete("v1");
    let mut first = Box::pin(operations.run(identity, claims.clone(), work));
    assert!(futures_util::poll!(&mut first).is_pending());
    let mut second = Box::pin(operations.run(identity, claims, async { Ok(0u32) }));
    assert!(futures_util::poll!(&mut second).is_pending());

    let (identity, claims) = expand("v1");
    let refused = operations.run(identity, claims.clone(), async { Ok(0u32) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    assert_eq!(refused.message(), "volume v1 is busy with DeleteVolume: call again later");
    let (other, others) = expand("v2");
    assert_eq!(operations.run(other, others, async { Ok(2u32) }).await.unwrap(), 2);

    finish.send(7).unwrap();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (7, 7));
    assert_eq!(operations.run(identity, claims, async { Ok(1u32) }).await.unwrap(), 1);
}

#[tokio::test]
async fn an_operation_outlives_its_caller() {
    let operations = Operations::default();
    let (finish, work) = held();
    let (identity, claims) = delete("v1");
    let mut call = Box::pin(operations.run(identity, claims, work));
    assert!(futures_util::poll!(&mut call).is_pending());
    drop(call);
    let (other, claims) = expand("v1");
    let refused = operations.run(other, claims, async { Ok(0u32) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);

    let mut drained = Box::pin(operations.drain(Duration::from_secs(60)));
    assert!(futures_util::poll!(&mut drained).is_pending());
    finish.send(7).unwrap();
    drained.await;
    assert!(operations.state().locks.is_empty());
}

#[tokio::test]
async fn a_panic_fails_its_operation_and_frees_the_volume() {
    let operations = Operations::default();
    let (identity, claims) = delete("v1");
    let failed = operations.run::<()>(identity, claims.clone(), async { panic!("at the disco") });
    let failed = failed.await.unwrap_err();
    assert_eq!(
        (failed.code(), failed.message()),
        (Code::Internal, "the driver panicked in DeleteVolume")
    );
    operations.run(identity, claims, async { Ok(()) }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_bounded() {
    let operations = Operations::default();
    let (identity, claims) = delete("v1");
    let mut call = Box::pin(operations.run::<()>(identity, claims, std::future::pending()));
    assert!(futures_util::poll!(&mut call).is_pending());
    let started = tokio::time::Instant::now();
    operations.drain(Duration::from_secs(5)).await;
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

/// A step of the model: call an operation on a volume, or finish one that runs.
#[derive(Clone, Debug)]
enum Step {
    Call { kind: bool, volume: u8 },
    Finish(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let call = (any::<bool>(), 0..3u8).prop_map(|(kind, volume)| Step::Call { kind, volume });
    let finish = any::<prop::sample::Index>().prop_map(Step::Finish);
    prop::collection::vec(prop_oneof![3 => call, 1 => finish], 1..40)
}

proptest! {
    /// The same call joins, another call on the same volume is aborted, and every caller gets the
    /// result of the operation that ran.
    #[test]
    fn calls_start_join_or_abort_as_the_model_says(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(play(steps))?;
    }
}

async fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    struct Running<C> {
        kind: bool,
        volume: u8,
        result: u32,
        finish: oneshot::Sender<u32>,
        callers: Vec<C>,
    }
    let operations = Operations::default();
    let started = Arc::new(AtomicU32::new(0));
    let (mut running, mut expected) = (Vec::<Running<_>>::new(), 0);
    for (number, step) in (0u32..).zip(steps) {
        match step {
            Step::Call { kind, volume } => {
                let (finish, work) = held();
                let started = started.clone();
                let work = async move {
                    started.fetch_add(1, Ordering::Relaxed);
                    work.await
                };
                let id = volume.to_string();
                let (identity, claims) = if kind { delete(&id) } else { expand(&id) };
                let operations = operations.clone();
                let mut call =
                    Box::pin(async move { operations.run(identity, claims, work).await });
                let polled = futures_util::poll!(&mut call);
                match running.iter_mut().find(|it| it.volume == volume) {
                    Some(same) if same.kind == kind => same.callers.push(call),
                    Some(_) => {
                        let std::task::Poll::Ready(Err(refused)) = polled else {
                            return Err(TestCaseError::fail("a conflict was let in"));
                        };
                        prop_assert_eq!(refused.code(), Code::Aborted);
                    }
                    None => {
                        expected += 1;
                        let callers = vec![call];
                        running.push(Running { kind, volume, result: number, finish, callers });
                    }
                }
            }
            Step::Finish(index) if !running.is_empty() => {
                let ended = running.swap_remove(index.index(running.len()));
                prop_assert_eq!(ended.finish.send(ended.result), Ok(()));
                for caller in ended.callers {
                    prop_assert_eq!(caller.await.unwrap(), ended.result);
                }
            }
            Step::Finish(_) => {}
        }
        tokio::task::yield_now().await;
        prop_assert_eq!(started.load(Ordering::Relaxed), expected);
    }
    Ok(())
}
