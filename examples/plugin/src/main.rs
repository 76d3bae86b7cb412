//! A device plugin that registers itself: two widgets, offered as `example.com/widget`.
//!
//! It serves two services on one socket in the node's plugins_registry folder: `Registration` and
//! `DevicePlugin`. It works with `wharf plugins run` and with a kubelet.

use std::{path::PathBuf, pin::Pin, time::Duration};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wharf_plugin::{Verdict, serve_registration};
use wharf_proto::{
    deviceplugin::{
        AllocateRequest, AllocateResponse, Device, DevicePluginOptions, Empty, HEALTHY,
        ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
        PreferredAllocationRequest, PreferredAllocationResponse, VERSION,
        device_plugin_server::{DevicePlugin, DevicePluginServer},
    },
    pluginregistration::{DEVICE_PLUGIN, PluginInfo},
};
use wharf_uds::{ListenOptions, Listener};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let folder = std::env::args_os().nth(1).context("usage: example-plugin PLUGINS_REGISTRY")?;
    let (registration, mut verdicts) = serve_registration(PluginInfo {
        r#type: DEVICE_PLUGIN.to_owned(),
        name: "example.com/widget".to_owned(),
        endpoint: String::new(), // the device service is on the same socket
        supported_versions: vec![VERSION.to_owned()],
    });
    let routes = registration.add_service(DevicePluginServer::new(Widgets));

    let socket = PathBuf::from(folder).join("example.sock");
    let listener = Listener::bind(&socket, &ListenOptions::default())?;
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(listener.serve(routes, Duration::from_secs(1), stop.clone()));
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            served = &mut serving => return Ok(served?),
            _ = terminate.recv() => stop.cancel(),
            Some(verdict) = verdicts.recv() => match verdict {
                Verdict::Registered => eprintln!("registered at {}", socket.display()),
                Verdict::Refused(reason) => bail!("the node refused this plugin: {reason}"),
            },
        }
    }
}

struct Widgets;

#[tonic::async_trait]
impl DevicePlugin for Widgets {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions::default()))
    }

    /// Sends one list. The stream stays open, since its end would mean that the devices are gone.
    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let widget = |id: &str| Device { id: id.into(), health: HEALTHY.into(), topology: None };
        let list = ListAndWatchResponse { devices: vec![widget("widget-0"), widget("widget-1")] };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(list)).chain(tokio_stream::pending()))))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("any widget is as good as another"))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        let containers = request.into_inner().container_requests;
        let container_responses = containers.iter().map(|_| Default::default()).collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
