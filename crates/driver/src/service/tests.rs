use std::{future::Future, sync::mpsc, time::Duration};

use wharf_csi_sdk::{
    driver::{
        CapacityReport, NodeVolumeHealth, Staging, Stats, StorageHealth, VolumeHealth, VolumeList,
        Volumes,
    },
    request::{
        DeleteVolume, GetCapacity, NodeGetVolumeHealth, NodeGetVolumeStats, NodeUnstageVolume,
    },
};

use super::*;
use crate::pools::fixtures::pools;

/// Calls here do no long work.
const PATIENCE: Duration = Duration::from_secs(20);

fn driver(folder: &std::path::Path) -> Driver {
    let identity = Identity { name: "test".into(), node: "node".into(), attach_limit: 1 };
    Driver::new(identity, pools(folder))
}

/// Waits for a call that must not wait for other calls, whatever it returns.
async fn answers<T>(what: &str, call: impl Future<Output = T>) -> T {
    let answer = timeout(PATIENCE, call).await;
    answer.unwrap_or_else(|_| panic!("{what} waits for calls that hang"))
}

fn unstage() -> NodeUnstageVolume {
    NodeUnstageVolume { volume: "v".into(), staging_path: "/no/such/path".into() }
}

fn delete() -> DeleteVolume {
    DeleteVolume { volume: "v".into(), secrets: Default::default() }
}

fn stats() -> NodeGetVolumeStats {
    let volume_path = "/no/such/path".into();
    NodeGetVolumeStats { volume: "v".into(), volume_path, staging_path: None }
}

fn health() -> NodeGetVolumeHealth {
    NodeGetVolumeHealth { volume: "v".into(), publish_path: None, staging_path: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_look_and_hang_do_not_hold_up_those_that_change_or_readiness() {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = driver(folder.path());
    let served = driver.pools.picked(None).expect("the pool");
    let (begun, all_begun) = mpsc::channel();
    let mut ends = Vec::new();
    let hanging: Vec<_> = (0..Permits::PARALLEL)
        .map(|_| {
            let (end, wait) = mpsc::channel::<()>();
            ends.push(end);
            let begun = begun.clone();
            driver.run_read(&served, move |_, _| {
                let _ = begun.send(());
                // Ends when the sender is dropped.
                let _ = wait.recv();
                Ok(())
            })
        })
        .collect();
    let others = async {
        tokio::task::block_in_place(|| {
            for _ in 0..Permits::PARALLEL {
                all_begun.recv_timeout(PATIENCE).expect("all of them begin");
            }
        });
        answers("unstage", Staging::unstage(&driver, unstage())).await.expect("nothing staged");
        answers("delete", Volumes::delete(&driver, delete())).await.expect("no volume");
        assert_eq!(answers("readyz", driver.pool_ailment()).await, None);
        ends.clear();
    };
    let (ended, ()) = tokio::join!(join_all(hanging), others);
    assert!(ended.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_change_and_hang_do_not_hold_up_those_that_look() {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = driver(folder.path());
    let all = u32::try_from(Permits::PARALLEL).expect("a small number");
    let served = driver.pools.picked(None).expect("the pool");
    let _changes = served.permits.changes.acquire_many(all).await.expect("never closed");
    answers("stats", Stats::stats(&driver, stats())).await.expect_err("no volume");
    answers("health", NodeVolumeHealth::health(&driver, health())).await.expect_err("no volume");
    answers("get health", VolumeHealth::get(&driver, "v".into())).await.expect_err("no volume");
    answers("list health", VolumeHealth::list(&driver, None, 1)).await.expect("an empty list");
    answers("list", VolumeList::list(&driver, None, 1)).await.expect("an empty list");
    let (capabilities, parameters, topology) = Default::default();
    let none = GetCapacity { capabilities, parameters, topology };
    answers("capacity", CapacityReport::available(&driver, none)).await.expect("a figure");
    let secrets = Default::default();
    answers("storage", StorageHealth::health(&driver, secrets)).await.expect("a report");
    assert_eq!(answers("readyz", driver.pool_ailment()).await, None);
}
