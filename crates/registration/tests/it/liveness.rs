//! The liveness probe.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use wharf_registration::plugin::liveness::{check, driver_name};
use wharf_testkit::csi_driver::{Answer, DriverScript, ScriptedDriver, Transport};

use crate::support::{folder, soon};

const NAME: &str = "csi.example.com";

#[tokio::test]
async fn a_probe_says_how_the_driver_is() {
    let folder = folder();
    let socket = folder.path().join("csi.sock");
    let patience = Duration::from_millis(300);
    let answer = |answer| DriverScript::new(NAME).with("Probe", answer);
    let ready = |ready| DriverScript { ready, ..DriverScript::new(NAME) };
    let transport = |transport| DriverScript { transport, ..DriverScript::new(NAME) };
    let starting = Answer::Error(tonic::Status::failed_precondition("still starting"));
    for (script, wanted) in [
        (ready(Some(true)), Ok(())),
        (ready(None), Ok(())),
        (ready(Some(false)), Err("driver responded but is not ready")),
        (answer(starting), Err("rpc error: code = FailedPrecondition desc = still starting")),
        (answer(Answer::Never), Err("rpc error: code = DeadlineExceeded desc = ")),
        (transport(Transport::Mute), Err("rpc error: code = DeadlineExceeded desc = ")),
        (transport(Transport::Garbage), Err("rpc error: code = Unavailable desc = ")),
        (transport(Transport::HangUp), Err("rpc error: code = Unavailable desc = ")),
    ] {
        let shown = format!("{script:?}");
        let _driver = ScriptedDriver::serve(&socket, script);
        let started = Instant::now();
        let found = check(&socket, patience, None).await;
        let took = started.elapsed();
        match (&found, wanted) {
            (Ok(()), Ok(())) => {}
            (Err(found), Err(wanted)) => assert!(found.starts_with(wanted), "{found}"),
            _ => panic!("{found:?} is not {wanted:?} for {shown}"),
        }
        assert!(took < Duration::from_secs(3), "{took:?} for {shown}");
    }
}

#[tokio::test]
async fn a_driver_that_restarts_is_well_again() {
    let folder = folder();
    let socket = folder.path().join("csi.sock");
    let patience = Duration::from_secs(5);
    for _ in 0..3 {
        let driver = ScriptedDriver::serve(&socket, DriverScript::new(NAME));
        assert_eq!(check(&socket, patience, None).await, Ok(()));
        driver.kill().await;
        let error = check(&socket, patience, None).await.unwrap_err();
        assert!(error.starts_with("rpc error: code = Unavailable desc = "), "{error}");
        assert!(error.contains(socket.to_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn the_name_is_waited_for() {
    let folder = folder();
    let socket = folder.path().join("csi.sock");
    let mut asking = JoinSet::new();
    let asked = socket.clone();
    asking.spawn(async move { driver_name(&asked, None).await });
    let driver = ScriptedDriver::serve(&socket, DriverScript::new(""));
    driver.wait_for_calls("GetPluginInfo", 1).await;
    driver.change(|script| {
        script.answers.insert("GetPluginInfo", Answer::Error(tonic::Status::unavailable("soon")));
    });
    driver.wait_for_calls("GetPluginInfo", 2).await;
    assert!(asking.try_join_next().is_none(), "an empty name is none");
    driver.change(|script| *script = DriverScript::new(NAME));
    assert_eq!(soon(asking.join_next()).await.unwrap().unwrap(), NAME);
}
