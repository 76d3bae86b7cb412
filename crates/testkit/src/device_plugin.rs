//! A device plugin without devices.

use std::{
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt, wrappers::WatchStream};
use tonic::{Request, Response, Status};
use wharf_proto::deviceplugin::{
    AllocateRequest, AllocateResponse, Device, DevicePluginOptions, Empty, ListAndWatchResponse,
    PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
    device_plugin_server::{DevicePlugin, DevicePluginServer},
};
use wharf_uds::Routes;

use crate::front::{Front, Transport};

type List = watch::Sender<Vec<Device>>;

/// Serves `DevicePlugin` on a path until it is stopped or killed; dropping it kills it.
pub struct ScriptedDevicePlugin {
    front: Front,
    service: Service,
}

impl ScriptedDevicePlugin {
    /// Serves on the path, replacing an existing socket, with a list of device IDs and healths.
    pub fn serve(path: &Path, devices: &[(&str, &str)]) -> Self {
        let list = watch::Sender::new(list(devices));
        let service = Service { list: Arc::new(Mutex::new(list)) };
        let routes = Routes::new(DevicePluginServer::new(service.clone()));
        Self { front: Front::serve(path, Transport::Grpc, routes), service }
    }

    /// The plugin's own socket.
    pub fn path(&self) -> &Path {
        self.front.path()
    }

    /// Sends a new list to all watchers.
    pub fn send(&self, devices: &[(&str, &str)]) {
        self.service.list().send_replace(list(devices));
    }

    /// Ends the streams of all watchers; new watches are answered.
    pub fn end_streams(&self) {
        let mut current = self.service.list();
        let devices = current.borrow().clone();
        *current = watch::Sender::new(devices);
    }

    /// Ends like after kill -9: the socket file stays, without a listener.
    pub async fn kill(self) {
        self.front.kill().await;
    }
}

fn list(devices: &[(&str, &str)]) -> Vec<Device> {
    let device = |&(id, health): &(&str, &str)| Device {
        id: id.to_owned(),
        health: health.to_owned(),
        topology: None,
    };
    devices.iter().map(device).collect()
}

#[derive(Clone)]
struct Service {
    list: Arc<Mutex<List>>,
}

impl Service {
    fn list(&self) -> std::sync::MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions {
            pre_start_required: true,
            ..DevicePluginOptions::default()
        }))
    }

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = WatchStream::new(self.list().subscribe());
        Ok(Response::new(Box::pin(lists.map(|devices| Ok(ListAndWatchResponse { devices })))))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(Status::unimplemented("GetPreferredAllocation"))
    }

    async fn allocate(
        &self,
        _: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        Err(Status::unimplemented("Allocate"))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Err(Status::unimplemented("PreStartContainer"))
    }
}
