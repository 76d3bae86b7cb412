//! A hook server that keeps containers of pods with the label `noisy` on one CPU.

use std::{path::PathBuf, sync::Arc};

use wharf_hooks::prelude::*;

struct Quarantine {
    cpu: String,
}

#[async_trait]
impl PreCreateContainer for Quarantine {
    async fn pre_create_container(
        &self,
        container: &Container,
    ) -> Result<ContainerAdjustment, Refusal> {
        if !container.pod.labels.contains_key("noisy") {
            return Ok(ContainerAdjustment::new());
        }
        if container.qos() == Some(QosClass::Guaranteed) {
            return Err(Refusal::new("a noisy pod must not be Guaranteed: take its limits off"));
        }
        Ok(ContainerAdjustment::new().cpuset(&self.cpu).env("GOMAXPROCS", "1"))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let cpu = args.next().unwrap_or("0".to_owned());
    let socket = PathBuf::from(args.next().unwrap_or("/run/quarantine/hooks.sock".to_owned()));
    let folder = PathBuf::from(args.next().unwrap_or("/etc/runtime/hookserver.d".to_owned()));
    let hook = Arc::new(Quarantine { cpu });
    let server = HookServer::builder("quarantine").pre_create_container(hook).build()?;
    Ok(server.run(&socket, &folder).await?)
}
