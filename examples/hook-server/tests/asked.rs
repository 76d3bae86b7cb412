//! Calls the example like a proxy, and compares it with docs/hooks.md.

#![allow(clippy::unwrap_used, missing_docs)]

use std::{process::Command, time::Duration};

use wharf_proto::hooks::{
    ContainerResourceHookRequest, LinuxContainerResources,
    runtime_hook_service_client::RuntimeHookServiceClient,
};
use wharf_testkit::{peers::repository, process::Process};
use wharf_uds::{Channel, ChannelOptions};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn noisy_containers_are_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, hooks) = (folder.path().join("h.sock"), folder.path().join("hookserver.d"));
    let file = hooks.join("quarantine.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_example-hook-server"));
    command.arg("3").arg(&socket).arg(&hooks);
    let mut server = Process::start("server", &command, folder.path()).unwrap();
    let registered = || std::future::ready(file.exists().then_some(()));
    server.ready(PATIENCE, "its file", registered).await.unwrap();

    let mut proxy = RuntimeHookServiceClient::new(Channel::new(&socket, ChannelOptions::default()));
    let mut request = ContainerResourceHookRequest {
        pod_labels: [("noisy".to_owned(), String::new())].into(),
        pod_cgroup_parent: "/kubepods/burstable/pod1".to_owned(),
        container_resources: Some(LinuxContainerResources {
            oom_score_adj: 900,
            ..LinuxContainerResources::default()
        }),
        container_envs: [("A".to_owned(), "b".to_owned())].into(),
        ..ContainerResourceHookRequest::default()
    };
    let answer = proxy.pre_create_container_hook(request.clone()).await.unwrap().into_inner();
    let resources = answer.container_resources.unwrap();
    assert_eq!((resources.cpuset_cpus.as_str(), resources.oom_score_adj), ("3", 900));
    assert_eq!(answer.container_envs["GOMAXPROCS"], "1");
    assert_eq!(answer.container_envs["A"], "b");

    request.pod_cgroup_parent = "/kubepods/pod1".to_owned();
    let refusal = proxy.pre_create_container_hook(request).await.unwrap_err();
    assert!(refusal.message().contains("take its limits off"), "{refusal}");
    let quiet = ContainerResourceHookRequest::default();
    let answer = proxy.pre_create_container_hook(quiet).await.unwrap().into_inner();
    assert_eq!(answer, Default::default());

    assert!(server.stop(PATIENCE).await.unwrap().success());
    assert!(!file.exists() && !socket.exists());
}

#[test]
fn the_docs_show_it_as_it_is() {
    let document = std::fs::read_to_string(repository().join("docs/hooks.md")).unwrap();
    let code = std::fs::read_to_string(repository().join("examples/hook-server/src/main.rs"));
    assert!(document.contains(&format!("```rust\n{}```", code.unwrap())), "copy main.rs there");
}
