//! kill -9 of any part at any moment: the restarted part recovers.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use wharf_testkit::process::Process;

use crate::support::{Bench, PATIENCE, get};

/// A registration takes some 20 ms: these moments are spread over it.
const MOMENTS: [u64; 8] = [0, 3, 6, 10, 15, 20, 30, 60];

#[derive(Clone, Copy, Debug)]
enum Victim {
    Driver,
    Registrar,
    Manager,
}

/// Starts everything, kills one part after `moment`, starts it again, and waits until the driver is
/// registered and connected and its registrar knows.
async fn survives(victim: Victim, moment: Duration) {
    let bench = Bench::new();
    let (mut manager, mut address) = bench.manager().await;
    let mut driver = bench.driver().await;
    let mut registrar = bench.registrar(&[]);
    // The moment of the fault, not a wait for anything.
    tokio::time::sleep(moment).await;
    match victim {
        Victim::Driver => {
            kill(driver).await;
            driver = bench.driver().await;
        }
        Victim::Registrar => registrar.signal(Signal::KILL).unwrap(),
        Victim::Manager => {
            kill(manager).await;
            (manager, address) = bench.manager().await;
        }
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        // A registrar that ended, killed or because its driver was, is started again, as the
        // kubelet does it.
        if registrar.wait(Duration::from_millis(20)).await.is_ok() {
            registrar = bench.registrar(&[]);
        }
        if settled(&address) && registrar.tail().contains("driver is registered") {
            break;
        }
        let logs = || format!("{}\n{}", manager.tail(), registrar.tail());
        assert!(Instant::now() < deadline, "{victim:?} after {moment:?}:\n{}", logs());
    }
    assert_eq!(registrar.stop(PATIENCE).await.unwrap().code(), Some(0), "{victim:?} {moment:?}");
    driver.stop(PATIENCE).await.unwrap();
    assert_eq!(manager.stop(PATIENCE).await.unwrap().code(), Some(0), "{victim:?} {moment:?}");
}

/// Whether the manager has the driver registered and its connection stands.
fn settled(address: &str) -> bool {
    let metrics = get(&format!("http://{address}/metrics")).1;
    let has = |name: &str, end: &str| {
        metrics.lines().any(|line| line.starts_with(name) && line.ends_with(end))
    };
    has("plugin_manager_total_plugins{", "state=\"actual_state_of_world\"} 1")
        && has("wharf_csi_driver_connected{", " 1")
}

async fn kill(mut process: Process) {
    process.signal(Signal::KILL).unwrap();
    process.wait(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_driver_killed_at_any_moment_is_registered_when_it_is_back() {
    for moment in MOMENTS {
        survives(Victim::Driver, Duration::from_millis(moment)).await;
    }
}

#[tokio::test]
async fn a_registrar_killed_at_any_moment_registers_when_it_is_back() {
    for moment in MOMENTS {
        survives(Victim::Registrar, Duration::from_millis(moment)).await;
    }
}

#[tokio::test]
async fn a_manager_killed_at_any_moment_finds_the_driver_again() {
    for moment in MOMENTS {
        survives(Victim::Manager, Duration::from_millis(moment)).await;
    }
}
