//! The proxy's results of failing hooks, and the arguments of hooks after a call.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use prometheus_client::registry::Registry;
use tonic::{Code, Request};
use wharf_hooks::{HookMetrics, prelude::*};

use crate::support::{Running, container, sandbox};

/// Fails as the container's name says.
struct Bad;

#[async_trait]
impl PreCreateContainer for Bad {
    async fn pre_create_container(
        &self,
        container: &Container,
    ) -> Result<ContainerAdjustment, Refusal> {
        match container.name.as_str() {
            "refused" => Err(Refusal::new("no room on this node")),
            "error" => Err("x".parse::<u8>().unwrap_err().into()),
            "panics" => panic!("as it was told"),
            "unsound" => Ok(ContainerAdjustment::new().cpu_shares(0)),
            _ => Ok(ContainerAdjustment::new()),
        }
    }
}

#[tokio::test]
async fn a_hook_that_fails_fails_its_call() {
    let mut registry = Registry::default();
    let metrics = HookMetrics::register(&mut registry);
    let server = HookServer::builder("test")
        .pre_create_container(Arc::new(Bad))
        .metrics(metrics)
        .build()
        .unwrap();
    let running = Running::start(&server).await;
    let mut proxy = running.proxy();
    for (name, code, text) in [
        ("refused", Code::FailedPrecondition, "no room on this node"),
        ("error", Code::FailedPrecondition, "invalid digit"),
        ("panics", Code::Internal, "panicked"),
        ("unsound", Code::Internal, "cpu_shares: expected 1"),
    ] {
        let mut request = container();
        request.container_meta.as_mut().unwrap().name = name.to_owned();
        let status = proxy.pre_create_container_hook(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
    }
    proxy.pre_create_container_hook(container()).await.unwrap();
    // The server has no such hook.
    let status = proxy.pre_run_pod_sandbox_hook(sandbox()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert_eq!(running.config()["runtime-hooks"], serde_json::json!(["PreCreateContainer"]));

    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = "wharf_hook_server_seconds_count{hook=\"PreCreateContainer\",grpc_status_code=\"FailedPrecondition\"} 2";
    assert!(text.contains(line), "{text}");
    running.stop().await;
}

#[derive(Default)]
struct Told(Mutex<Vec<Option<Outcome>>>);

#[async_trait]
impl PostStopPodSandbox for Told {
    async fn post_stop_pod_sandbox(
        &self,
        sandbox: &PodSandbox,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal> {
        assert_eq!(sandbox.pod.qos(), Some(QosClass::Burstable));
        self.0.lock().unwrap().push(outcome);
        Ok(())
    }
}

#[async_trait]
impl PostStopContainer for Told {
    async fn post_stop_container(
        &self,
        _: &Container,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal> {
        self.0.lock().unwrap().push(outcome);
        Err(Refusal::new("cannot give it back"))
    }
}

#[tokio::test]
async fn hooks_after_a_call_hear_how_it_went() {
    let told = Arc::new(Told::default());
    let server = HookServer::builder("test")
        .post_stop_pod_sandbox(told.clone())
        .post_stop_container(told.clone())
        .build()
        .unwrap();
    let running = Running::start(&server).await;
    let mut proxy = running.proxy();
    let mut request = Request::new(sandbox());
    for (key, value) in [
        ("wharf-outcome-code", "4"),
        ("wharf-outcome-message", "too%20late"),
        ("wharf-outcome-duration-ms", "20"),
    ] {
        request.metadata_mut().insert(key, value.parse().unwrap());
    }
    let answer = proxy.post_stop_pod_sandbox_hook(request).await.unwrap().into_inner();
    assert_eq!(answer, Default::default());
    let status = proxy.post_stop_container_hook(container()).await.unwrap_err();
    assert_eq!(status.message(), "cannot give it back");

    let late = Outcome {
        code: Code::DeadlineExceeded,
        message: "too late".to_owned(),
        duration: Duration::from_millis(20),
    };
    assert_eq!(*told.0.lock().unwrap(), [Some(late), None]);
    running.stop().await;
}
