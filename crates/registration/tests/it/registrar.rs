//! The registrar of a driver, with our own manager as the kubelet.

use std::{fs, os::unix::net::UnixListener, path::PathBuf, time::Duration};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_registration::{
    manager::EventKind,
    plugin::{Registrar, RegistrarError, RegistrarHealth, RegistrarOptions},
};
use wharf_testkit::{
    csi_driver::{Answer, DriverScript, ScriptedDriver},
    plugin::{PluginScript, ScriptedPlugin},
};

use crate::{
    recording::{
        Step::{Register, Validate},
        Treatment,
    },
    support::{Fixture, folder, soon},
};

const NAME: &str = "csi.example.com";

#[tokio::test]
async fn a_driver_is_registered_for_as_long_as_the_registrar_runs() {
    let mut fixture = Fixture::start().await;
    let driver = driver(&fixture, DriverScript::new(NAME));
    let registrar = Running::start(options(&fixture));
    fixture.settled_with(&[NAME]).await;
    let view = fixture.view("csi.example.com-reg.sock").expect("named after the driver");
    assert_eq!(view.endpoint.as_deref(), Some("/var/lib/kubelet/plugins/x/csi.sock"));
    assert_eq!(view.versions, ["1.0.0"]);
    assert_eq!(driver.calls("GetPluginInfo"), 1);
    assert_eq!(registrar.health.check(Duration::from_secs(5)).await, Ok(()));
    registrar.stop().await.unwrap();
    assert!(!fixture.path("csi.example.com-reg.sock").exists());
    fixture.settled_with(&[]).await;
}

#[tokio::test]
async fn a_deleted_socket_is_made_again_while_the_driver_answers() {
    let mut fixture = Fixture::start().await;
    let driver = driver(&fixture, DriverScript::new(NAME));
    let registrar = Running::start(options(&fixture));
    fixture.settled_with(&[NAME]).await;
    let socket = fixture.path("csi.example.com-reg.sock");
    fs::remove_file(&socket).unwrap();
    fixture.event(&socket, &EventKind::Gone).await;
    let gone = std::time::Instant::now();
    fixture.event(&socket, &EventKind::Registered).await;
    assert!(gone.elapsed() > Duration::from_millis(900), "after {:?}", gone.elapsed());
    assert_eq!(driver.calls("GetPluginInfo"), 2, "it is asked before");
    registrar.stop().await.unwrap();
}

#[tokio::test]
async fn a_driver_that_comes_back_as_another_is_registered_under_its_new_name() {
    let mut fixture = Fixture::start().await;
    let first = driver(&fixture, DriverScript::new(NAME));
    let registrar = Running::start(options(&fixture));
    fixture.settled_with(&[NAME]).await;
    first.kill().await;
    let second = driver(&fixture, DriverScript::new("other.example.com"));
    fixture.settled_with(&["other.example.com"]).await;
    assert!(!fixture.path("csi.example.com-reg.sock").exists());
    // A restart of the same driver does not register again.
    second.kill().await;
    let third = driver(&fixture, DriverScript::new("other.example.com"));
    third.wait_for_calls("GetPluginInfo", 1).await;
    let socket = fixture.path("other.example.com-reg.sock");
    assert_eq!(registrar.health.check(Duration::from_secs(5)).await, Ok(()));
    assert_eq!(fixture.handler.steps(&socket), [Validate, Register]);
    registrar.stop().await.unwrap();
}

#[tokio::test]
async fn a_refused_registrar_ends_with_the_reason() {
    let fixture = Fixture::start().await;
    fixture.handler.treat(NAME, Treatment::Refuse(Validate, "no such driver here"));
    let _driver = driver(&fixture, DriverScript::new(NAME));
    let ended = Running::start(options(&fixture)).ended().await;
    let Err(RegistrarError::Refused(reason)) = ended else { panic!("{ended:?}") };
    assert_eq!(
        reason,
        "RegisterPlugin error -- plugin validation failed with err: no such driver here"
    );
    assert!(!fixture.path("csi.example.com-reg.sock").exists());
}

#[tokio::test]
async fn a_socket_that_a_killed_registrar_left_is_taken_over() {
    let mut fixture = Fixture::start().await;
    let _driver = driver(&fixture, DriverScript::new(NAME));
    drop(UnixListener::bind(fixture.path("csi.example.com-reg.sock")).unwrap());
    let registrar = Running::start(options(&fixture));
    fixture.settled_with(&[NAME]).await;
    registrar.stop().await.unwrap();
}

#[tokio::test]
async fn what_stands_in_the_way_is_an_error_and_is_left_alone() {
    let fixture = Fixture::start().await;
    let _driver = driver(&fixture, DriverScript::new(NAME));
    let socket = fixture.path("csi.example.com-reg.sock");
    fs::write(&socket, "precious").unwrap();
    let error = Running::start(options(&fixture)).ended().await.unwrap_err();
    assert!(matches!(error, RegistrarError::Listen(_)), "{error:?}");
    assert!(error.to_string().contains("exists and is not a socket"), "{error}");
    assert_eq!(fs::read(&socket).unwrap(), b"precious");

    fs::remove_file(&socket).unwrap();
    let other = ScriptedPlugin::serve(&socket, PluginScript::csi(NAME));
    other.wait_for_verdict(true).await;
    let error = Running::start(options(&fixture)).ended().await.unwrap_err();
    assert!(error.to_string().contains("a live peer serves"), "{error}");
    assert!(socket.exists());
}

#[tokio::test]
async fn a_driver_that_does_not_say_its_name_is_an_error() {
    let fixture = Fixture::start().await;
    let refusing = Answer::Error(tonic::Status::failed_precondition("ask later"));
    let limit = Duration::from_millis(200);
    for (script, text) in [
        (DriverScript::new(""), "GetPluginInfo returned an empty name".to_owned()),
        (DriverScript::new("../../escaped"), "\"../../escaped\" is not domain-like".to_owned()),
        (DriverScript::new("a\u{1b}[2J"), "\"a\\u{1b}[2J\" is not domain-like".to_owned()),
        (
            DriverScript::new(&"x".repeat(1 << 20)),
            format!("{:?}... has 1048576 bytes: expected at most 63", "x".repeat(63)),
        ),
        (
            DriverScript::new(NAME).with("GetPluginInfo", refusing),
            "GetPluginInfo failed: FailedPrecondition: ask later".to_owned(),
        ),
        (
            DriverScript::new(NAME).with("GetPluginInfo", Answer::Never),
            "GetPluginInfo failed: DeadlineExceeded".to_owned(),
        ),
    ] {
        let _driver = driver(&fixture, script);
        let options = RegistrarOptions { timeout: limit, ..options(&fixture) };
        let error = Running::start(options).ended().await.unwrap_err().to_string();
        assert!(error.contains(&text), "{error}");
        assert!(error.contains(csi_address(&fixture).to_str().unwrap()), "{error}");
    }
}

/// Nothing here waits for another process, so the paused clock may advance freely.
#[tokio::test(start_paused = true)]
async fn a_driver_that_never_comes_is_an_error_after_half_a_minute() {
    let folder = folder();
    let options = RegistrarOptions {
        csi_address: folder.path().join("csi.sock"),
        kubelet_registration_path: "/csi.sock".to_owned(),
        registration_folder: folder.path().to_owned(),
        timeout: Duration::from_secs(1),
        metrics: None,
    };
    let started = tokio::time::Instant::now();
    let ended = Registrar::new(options.clone()).run(CancellationToken::new()).await;
    assert!(matches!(ended, Err(RegistrarError::NoDriver(_))), "{ended:?}");
    assert!((30..45).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());

    let stop = CancellationToken::new();
    stop.cancel();
    Registrar::new(options).run(stop).await.expect("stopped before there is a driver");
}

#[tokio::test]
async fn health_tells_what_the_kubelet_would_find() {
    let mut fixture = Fixture::start().await;
    let patience = Duration::from_millis(500);
    let registrar = Running::start(options(&fixture));
    let (code, text) = registrar.health.check(patience).await.unwrap_err();
    assert_eq!((code, &*text), (404, "the registration socket does not exist yet"));

    let _driver = driver(&fixture, DriverScript::new(NAME));
    fixture.settled_with(&[NAME]).await;
    assert_eq!(registrar.health.check(patience).await, Ok(()));

    let socket = fixture.path("csi.example.com-reg.sock");
    let away = fixture.root().with_file_name("away");
    fs::rename(&socket, &away).unwrap();
    let (code, text) = registrar.health.check(patience).await.unwrap_err();
    assert_eq!(code, 404, "{text}");
    registrar.stop().await.unwrap();
}

#[tokio::test]
async fn health_asks_whoever_is_at_the_socket() {
    let fixture = Fixture::start().await;
    let patience = Duration::from_millis(500);
    let _driver = driver(&fixture, DriverScript::new(NAME));
    let registrar = Running::start(options(&fixture));
    fixture.handler.wait_for_count(Register, 1).await;
    let socket = fixture.path("csi.example.com-reg.sock");
    for (script, code, wanted) in [
        (
            PluginScript::csi("impostor"),
            500,
            "invalid driver name: expected \"csi.example.com\", got \"impostor\"",
        ),
        (
            PluginScript { get_info: Answer::Never, ..PluginScript::csi(NAME) },
            500,
            "GetInfo did not finish in 500ms",
        ),
    ] {
        // Renamed over the registrar's socket in one step, so that its socket never vanishes.
        let draft = fixture.root().with_file_name("draft.sock");
        let _impostor = ScriptedPlugin::serve(&draft, script);
        fs::rename(&draft, &socket).unwrap();
        let (found, text) = registrar.health.check(patience).await.unwrap_err();
        assert_eq!(found, code);
        assert!(text.contains(wanted), "{text}");
    }
    registrar.stop().await.unwrap();
}

fn csi_address(fixture: &Fixture) -> PathBuf {
    fixture.root().with_file_name("csi.sock")
}

fn driver(fixture: &Fixture, script: DriverScript) -> ScriptedDriver {
    ScriptedDriver::serve(&csi_address(fixture), script)
}

fn options(fixture: &Fixture) -> RegistrarOptions {
    RegistrarOptions {
        csi_address: csi_address(fixture),
        kubelet_registration_path: "/var/lib/kubelet/plugins/x/csi.sock".to_owned(),
        registration_folder: fixture.root(),
        timeout: Duration::from_secs(5),
        metrics: None,
    }
}

/// A registrar in a task.
struct Running {
    health: RegistrarHealth,
    stop: CancellationToken,
    task: JoinSet<Result<(), RegistrarError>>,
}

impl Running {
    fn start(options: RegistrarOptions) -> Self {
        let registrar = Registrar::new(options);
        let (health, stop) = (registrar.health(), CancellationToken::new());
        let mut task = JoinSet::new();
        task.spawn(registrar.run(stop.clone()));
        Self { health, stop, task }
    }

    async fn ended(mut self) -> Result<(), RegistrarError> {
        soon(self.task.join_next()).await.unwrap().unwrap()
    }

    async fn stop(self) -> Result<(), RegistrarError> {
        self.stop.cancel();
        self.ended().await
    }
}
