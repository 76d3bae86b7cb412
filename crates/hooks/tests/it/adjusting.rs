//! An adjustment changes the fields that it names only.

use std::sync::Arc;

use wharf_hooks::prelude::*;
use wharf_proto::hooks::{
    ContainerResourceHookRequest, LinuxContainerResources, PodSandboxHookResponse, Removals,
};

use crate::{
    koordinator::merged,
    support::{Running, container, map, sandbox},
};

/// Answers every container with the same adjustment.
struct Fixed {
    create: ContainerAdjustment,
    update: ResourceAdjustment,
}

#[async_trait]
impl PreCreateContainer for Fixed {
    async fn pre_create_container(
        &self,
        container: &Container,
    ) -> Result<ContainerAdjustment, Refusal> {
        assert_eq!(container.pod.namespace, "n");
        assert_eq!(container.qos(), Some(QosClass::Burstable));
        assert_eq!(container.env.get("TOKEN"), Some("hunter2"));
        assert!(!format!("{container:?}").contains("hunter2"));
        Ok(self.create.clone())
    }
}

#[async_trait]
impl PreUpdateContainerResources for Fixed {
    async fn pre_update_container_resources(
        &self,
        container: &Container,
    ) -> Result<ResourceAdjustment, Refusal> {
        assert_eq!(container.id.as_deref(), Some("id-1"));
        Ok(self.update.clone())
    }
}

async fn created(create: ContainerAdjustment) -> ContainerResourceHookRequest {
    let fixed = Fixed { create, update: ResourceAdjustment::new() };
    let server = HookServer::builder("test").pre_create_container(Arc::new(fixed)).build().unwrap();
    let running = Running::start(&server).await;
    let answer = running.proxy().pre_create_container_hook(container()).await.unwrap();
    running.stop().await;
    merged(container(), answer.into_inner())
}

async fn updated(update: ResourceAdjustment) -> ContainerResourceHookRequest {
    let fixed = Arc::new(Fixed { create: ContainerAdjustment::new(), update });
    let server = HookServer::builder("test").pre_update_container_resources(fixed).build().unwrap();
    let running = Running::start(&server).await;
    let answer = running.proxy().pre_update_container_resources_hook(container()).await.unwrap();
    running.stop().await;
    merged(container(), answer.into_inner())
}

type Edit = fn(&mut ContainerResourceHookRequest);

fn expected(edit: Edit) -> ContainerResourceHookRequest {
    let mut expected = container();
    edit(&mut expected);
    expected
}

fn resources(request: &mut ContainerResourceHookRequest) -> &mut LinuxContainerResources {
    request.container_resources.as_mut().unwrap()
}

#[tokio::test]
async fn a_container_to_be_changes_where_it_is_told() {
    let new = ContainerAdjustment::new;
    let cases: [(ContainerAdjustment, Edit); 16] = [
        (new(), |_| {}),
        (new().cpuset("0-1"), |r| resources(r).cpuset_cpus = "0-1".into()),
        (new().cpuset(""), |r| resources(r).cpuset_cpus = String::new()),
        (new().cpuset_mems("1"), |r| resources(r).cpuset_mems = "1".into()),
        (new().cpu_shares(2), |r| resources(r).cpu_shares = 2),
        (new().cpu_quota(-1), |r| resources(r).cpu_quota = -1),
        (new().cpu_period(10_000), |r| resources(r).cpu_period = 10_000),
        (new().memory(1), |r| resources(r).memory_limit_in_bytes = 1),
        (new().memory_swap(2), |r| resources(r).memory_swap_limit_in_bytes = 2),
        (new().oom_score_adj(5), |r| resources(r).oom_score_adj = 5),
        (new().unified("cpu.idle", "1"), |r| {
            resources(r).unified = map(&[("cpu.idle", "1"), ("memory.high", "7")]);
        }),
        (new().env("A", "b").env("PATH", "/sbin").annotation("own", "2"), |r| {
            r.container_envs = map(&[("A", "b"), ("PATH", "/sbin"), ("TOKEN", "hunter2")]);
            r.container_annotations = map(&[("own", "2")]);
        }),
        (new().cpuset("1").cpu_shares(3).resources(ResourceAdjustment::new().cpuset("2")), |r| {
            resources(r).cpuset_cpus = "2".into();
            resources(r).cpu_shares = 3;
        }),
        (new().cgroup_parent("/other"), |r| r.pod_cgroup_parent = "/other".into()),
        (new().env("A", "b").remove_env("PATH"), |r| {
            r.container_envs = map(&[("A", "b"), ("TOKEN", "hunter2")]);
        }),
        (new().remove_env("PATH").env("PATH", "/new"), |r| {
            r.container_envs = map(&[("PATH", "/new"), ("TOKEN", "hunter2")]);
        }),
    ];
    for (adjustment, edit) in cases {
        assert_eq!(created(adjustment).await, expected(edit));
    }
}

#[tokio::test]
async fn an_update_changes_where_it_is_told() {
    let new = ResourceAdjustment::new;
    let cases: [(ResourceAdjustment, Edit); 3] = [
        (new(), |_| {}),
        (new().cpuset("2"), |r| resources(r).cpuset_cpus = "2".into()),
        (new().memory(9).annotation("a", "b"), |r| {
            resources(r).memory_limit_in_bytes = 9;
            r.container_annotations = map(&[("a", "b"), ("own", "1")]);
        }),
    ];
    for (adjustment, edit) in cases {
        assert_eq!(updated(adjustment).await, expected(edit));
    }
}

/// Changes that koordinator's proxy cannot distinguish from no change are stated for a proxy that
/// reads partial answers.
#[tokio::test]
async fn removals_are_named() {
    let create = ContainerAdjustment::new()
        .cpuset("")
        .remove_env("PATH")
        .remove_annotation("own")
        .remove_annotation("set")
        .annotation("set", "again");
    let fixed = Fixed { create, update: ResourceAdjustment::new() };
    let server = HookServer::builder("test").pre_create_container(Arc::new(fixed)).build().unwrap();
    let running = Running::start(&server).await;
    let answer = running.proxy().pre_create_container_hook(container()).await.unwrap();
    running.stop().await;
    let removals = Removals {
        annotations: vec!["own".into()],
        envs: vec!["PATH".into()],
        cpuset_cpus: true,
        ..Default::default()
    };
    assert_eq!(answer.into_inner().removals, Some(removals));
}

struct Moves;

#[async_trait]
impl PreRunPodSandbox for Moves {
    async fn pre_run_pod_sandbox(&self, sandbox: &PodSandbox) -> Result<PodAdjustment, Refusal> {
        assert_eq!(sandbox.runtime_handler, "runc");
        Ok(PodAdjustment::new().label("l", "1").annotation("a", "2").cgroup_parent("/batch"))
    }
}

#[tokio::test]
async fn a_sandbox_changes_where_it_is_told() {
    let server = HookServer::builder("test").pre_run_pod_sandbox(Arc::new(Moves)).build().unwrap();
    let running = Running::start(&server).await;
    let answer = running.proxy().pre_run_pod_sandbox_hook(sandbox()).await.unwrap().into_inner();
    let wanted = PodSandboxHookResponse {
        labels: map(&[("l", "1")]),
        annotations: map(&[("a", "2")]),
        cgroup_parent: "/batch".into(),
        ..Default::default()
    };
    assert_eq!(answer, wanted);
    running.stop().await;
}
