//! The file in the proxy's folder: complete when it appears, and removed with its server.

use std::{
    collections::BTreeSet, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration,
};

use serde_json::json;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;
use wharf_hooks::{BuildError, HookServerBuilder, ServerError, prelude::*};

use crate::support::{PATIENCE, Running, container};

/// A hook that reports its start, and ends when the test permits it.
struct Slow {
    begun: Arc<Semaphore>,
    may_end: Arc<Semaphore>,
}

#[async_trait]
impl PreStartContainer for Slow {
    async fn pre_start_container(&self, _: &Container) -> Result<(), Refusal> {
        self.begun.add_permits(1);
        self.may_end.acquire().await?.forget();
        Ok(())
    }
}

#[async_trait]
impl PostStartContainer for Slow {
    async fn post_start_container(&self, _: &Container, _: Option<Outcome>) -> Result<(), Refusal> {
        Ok(())
    }
}

fn slow() -> (Arc<Slow>, HookServerBuilder) {
    let permits = || Arc::new(Semaphore::new(0));
    let slow = Arc::new(Slow { begun: permits(), may_end: permits() });
    let server = HookServer::builder("test")
        .pre_start_container(slow.clone())
        .post_start_container(slow.clone());
    (slow, server)
}

#[tokio::test]
async fn the_file_says_what_was_built() {
    let (_, server) = slow();
    let server = server
        .failure_policy(FailurePolicy::Fail)
        .failure_policy_at(HookPoint::PostStartContainer, FailurePolicy::Ignore)
        .order(7)
        .timeout(Duration::from_millis(250))
        .details(true)
        .build()
        .unwrap();
    let running = Running::start(&server).await;
    let wanted = json!({
        "remote-endpoint": running.socket(),
        "failure-policy": "Fail",
        "runtime-hooks": ["PreStartContainer", "PostStartContainer"],
        "order": 7,
        "timeout": "250ms",
        "failure-policies": { "PostStartContainer": "Ignore" },
        "answers": "partial",
        "details": true,
    });
    assert_eq!(running.config(), wanted);
    assert_eq!(mode(&running.file("test")), 0o644);
    assert_eq!(mode(running.file("test").parent().unwrap()), 0o755);
    assert_eq!(mode(&running.socket()), 0o600);

    let folder = running.stop().await;
    let left = std::fs::read_dir(folder.path().join("hooks.d")).unwrap().count();
    assert_eq!(left + std::fs::read_dir(folder.path().join("run")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_hook_in_flight_ends_well_and_the_file_goes_first() {
    let (slow, server) = slow();
    let running = Running::start(&server.build().unwrap()).await;
    let mut proxy = running.proxy();
    let mut call = JoinSet::new();
    call.spawn(async move { proxy.pre_start_container_hook(container()).await });
    slow.begun.acquire().await.unwrap().forget();

    running.stop.cancel();
    let mut ordered = true;
    running
        .until(|| {
            // In this order: the file must vanish before the socket.
            let (socket, file) = (running.socket().exists(), running.file("test").exists());
            ordered &= socket || !file;
            !file
        })
        .await;
    assert!(ordered, "the file named a socket that was gone");
    slow.may_end.add_permits(1);
    let answer = call.join_next().await.unwrap().unwrap().unwrap().into_inner();
    assert_eq!(answer, Default::default());
    running.stop().await;
}

#[tokio::test]
async fn a_file_of_another_is_left_alone() {
    let (_, server) = slow();
    let running = Running::start(&server.build().unwrap()).await;
    let other = running.file("other");
    std::fs::write(&other, "{}").unwrap();
    std::fs::rename(&other, running.file("test")).unwrap();
    let folder = running.stop().await;
    let text = std::fs::read_to_string(folder.path().join("hooks.d/test.json")).unwrap();
    assert_eq!(text, "{}");
}

#[tokio::test]
async fn a_file_may_stay() {
    let (_, server) = slow();
    let running = Running::start(&server.stays_registered(true).build().unwrap()).await;
    let folder = running.stop().await;
    assert!(folder.path().join("hooks.d/test.json").exists());
    assert!(!folder.path().join("run/h.sock").exists());
}

#[tokio::test]
async fn a_server_can_be_asked_less() {
    let (_, server) = slow();
    let server = server.build().unwrap();
    let running = Running::start(&server).await;
    let hooks = |names: &[&str]| running.config()["runtime-hooks"] == json!(names);
    // The second point is not offered, so the server does not ask for it.
    let fewer = BTreeSet::from([HookPoint::PostStartContainer, HookPoint::PreRunPodSandbox]);
    server.narrow(&fewer);
    running.until(|| hooks(&["PostStartContainer"])).await;
    server.narrow(&BTreeSet::new());
    running.until(|| !running.file("test").exists()).await;
    server.narrow(&server.offered());
    running.until(|| running.file("test").exists()).await;
    assert!(hooks(&["PreStartContainer", "PostStartContainer"]));
    running.stop().await;
}

/// A rolling update: the new server starts before the old one ends, with the same name and socket.
#[tokio::test]
async fn a_server_is_replaced_without_a_gap() {
    let (first, builder) = slow();
    let old = Running::start(&builder.build().unwrap()).await;
    let mut before = old.proxy();
    let mut call = JoinSet::new();
    let mut proxy = before.clone();
    call.spawn(async move { proxy.pre_start_container_hook(container()).await });
    first.begun.acquire().await.unwrap().forget();

    let (second, builder) = slow();
    let new = builder.order(9).build().unwrap();
    let stop = CancellationToken::new();
    let mut serving = JoinSet::new();
    let (socket, hooks, until) = (old.socket(), old.folder.path().join("hooks.d"), stop.clone());
    serving.spawn(async move { new.serve(&socket, &hooks, until).await });
    old.until(|| old.config()["order"] == json!(9)).await;
    second.may_end.add_permits(2);
    old.proxy().pre_start_container_hook(container()).await.unwrap();
    second.begun.acquire().await.unwrap().forget();

    // The old server still answers on its connections, and leaves socket and file to its successor.
    first.may_end.add_permits(1);
    call.join_next().await.unwrap().unwrap().unwrap();
    let folder = old.stop().await;
    assert!(folder.path().join("run/h.sock").exists());
    assert!(folder.path().join("hooks.d/test.json").exists());
    before.pre_start_container_hook(container()).await.unwrap();
    second.begun.acquire().await.unwrap().forget();
    stop.cancel();
    tokio::time::timeout(PATIENCE, serving.join_next()).await.unwrap().unwrap().unwrap().unwrap();
    assert!(!folder.path().join("run/h.sock").exists());
}

#[tokio::test]
async fn what_cannot_be_served_says_why() {
    let (_, server) = slow();
    let server = server.build().unwrap();
    let running = Running::start(&server).await;
    let (folder, hooks) = (running.folder.path(), running.folder.path().join("hooks.d"));
    let other = HookServer::builder("other").pre_start_container(slow().0).build().unwrap();
    let error = failure(&other, &running.socket(), &hooks).await;
    assert!(matches!(error, ServerError::Listen(_)), "{error}");

    // The folder's path is that of a file.
    let socket = folder.join("second.sock");
    let error = failure(&server, &socket, &running.file("test")).await;
    assert!(error.to_string().contains("test.json/test.json"), "{error}");
    assert!(!socket.exists());
    running.stop().await;
}

async fn failure(server: &HookServer, socket: &Path, folder: &Path) -> ServerError {
    let serving = server.serve(socket, folder, CancellationToken::new());
    tokio::time::timeout(PATIENCE, serving).await.unwrap().unwrap_err()
}

#[test]
fn what_cannot_be_built_says_why() {
    assert_eq!(HookServer::builder("test").build().unwrap_err(), BuildError::Empty);
    for name in ["", ".a", "a/b", "a b"] {
        let server = HookServer::builder(name).pre_start_container(slow().0);
        assert_eq!(server.build().unwrap_err(), BuildError::Name(name.to_owned()));
    }
    let error = slow()
        .1
        .failure_policy_at(HookPoint::PreCreateContainer, FailurePolicy::Fail)
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("PreCreateContainer"), "{error}");
    assert_eq!(slow().1.timeout(Duration::ZERO).build().unwrap_err(), BuildError::NoTime);
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}
