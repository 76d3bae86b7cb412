use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    future::Future,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{Mutex as AsyncMutex, watch};
use tonic::{Request, Response, Status};
use wharf_proto::csi::{
    GetPluginInfoRequest, GetPluginInfoResponse, NodeGetInfoRequest, ProbeRequest,
    controller_client::ControllerClient, group_controller_client::GroupControllerClient,
    identity_client::IdentityClient, node_client::NodeClient,
};
use wharf_uds::{Channel, ChannelOptions, DialError, LinkState, RpcMetrics, Silence};

use crate::{CALL_TIMEOUT, Calls, Capabilities, NodeCapabilities, payloads};

/// Maximum size of a response. A list may hold thousands of volumes, which exceeds gRPC's default
/// of 4 MiB.
const MAX_MESSAGE: usize = 64 << 20;

/// Options of a [`Driver`].
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Keep the connection open and reconnect at once, so that its state shows whether the driver
    /// runs.
    pub hold: bool,
    /// Timeout of a call.
    pub timeout: Duration,
    /// Metrics that count each call.
    pub metrics: Option<RpcMetrics>,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self { hold: false, timeout: CALL_TIMEOUT, metrics: None }
    }
}

/// A client of a CSI driver. Clones share the connection and the cached capabilities.
#[derive(Clone)]
pub struct Driver {
    channel: Channel,
    timeout: Duration,
    /// Maximum bytes of a response in the log.
    logged: usize,
    cache: Arc<Mutex<Cache>>,
    pub(crate) fetch_locks: Arc<FetchLocks>,
    /// The connection generation that calls are restricted to.
    only_on: Option<watch::Receiver<u64>>,
    /// Tracks calls that outlive their callers.
    calls: Option<Calls>,
}

/// Locks that make callers of the same fact share one call: all ask at once when a driver comes
/// back.
#[derive(Default)]
pub(crate) struct FetchLocks {
    pub(crate) plugin: AsyncMutex<()>,
    pub(crate) node: AsyncMutex<()>,
}

/// A driver's answer to NodeGetInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeInfo {
    /// The driver's ID of the node.
    pub node_id: String,
    /// Maximum number of volumes on the node; 0 means that the driver sets no limit.
    pub max_volumes: i64,
    /// Topology segments of the node.
    pub topology: BTreeMap<String, String>,
}

/// Facts that were fetched on one connection.
#[derive(Default)]
pub(crate) struct Cache {
    generation: u64,
    pub(crate) plugin: Option<Capabilities>,
    pub(crate) node: Option<NodeCapabilities>,
}

impl Driver {
    /// Creates a client of the driver at `socket`. Nothing is dialed before the first call, unless
    /// the options hold the connection.
    pub fn new(socket: impl AsRef<Path>, options: DriverOptions) -> Self {
        let channel = Channel::new(
            socket.as_ref(),
            ChannelOptions { hold: options.hold, ..ChannelOptions::default() },
        );
        let channel = match options.metrics {
            Some(metrics) => channel.with_metrics(metrics),
            None => channel,
        };
        let (cache, fetch_locks) = (Arc::default(), Arc::default());
        let (timeout, logged) = (options.timeout, payloads::MAX_LOGGED);
        Self { channel, timeout, logged, cache, fetch_locks, only_on: None, calls: None }
    }

    /// Returns this driver, on the same connection, with another timeout per call.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns this driver, on the same connection, with another limit of a response in the log
    /// than 8 KiB.
    #[must_use]
    pub fn with_logged_answers(mut self, bytes: usize) -> Self {
        self.logged = bytes;
        self
    }

    /// Returns this driver, on the same connection, with calls restricted to the connection
    /// generation in `known`: after a reconnect another driver may listen on the socket. A call
    /// waits, up to its timeout, until the current generation is in `known`.
    #[must_use]
    pub fn only_on(mut self, known: watch::Receiver<u64>) -> Self {
        self.channel = self.channel.only_on(known.clone());
        // Use separate locks: the caller that identifies a connection must not block on callers
        // that wait for the identification.
        self.fetch_locks = Arc::default();
        self.only_on = Some(known);
        self
    }

    /// Returns this driver, on the same connection, with calls that continue after their callers
    /// have gone and that are sent when `calls` allows it.
    #[must_use]
    pub fn with_calls(mut self, calls: Calls) -> Self {
        if let Some(until) = &calls.until {
            self.channel = self.channel.only_until(until.clone());
        }
        self.calls = Some(calls);
        self
    }

    /// Returns this driver, on the same connection, with responses that end `silence`.
    #[must_use]
    pub fn with_silence(mut self, silence: Silence) -> Self {
        self.channel = self.channel.with_silence(silence);
        self
    }

    /// The connection generation that calls are restricted to, if they are ([`Driver::only_on`]).
    pub fn known_generation(&self) -> Option<watch::Receiver<u64>> {
        self.only_on.clone()
    }

    /// Path of the driver's socket.
    pub fn socket(&self) -> &Path {
        self.channel.path()
    }

    /// State of the connection. For a held connection it shows whether the driver runs.
    pub fn link(&self) -> watch::Receiver<LinkState> {
        self.channel.link()
    }

    /// Whether the connection is up now.
    pub fn is_connected(&self) -> bool {
        matches!(*self.channel.link().borrow(), LinkState::Connected { .. })
    }

    /// Waits until the connection is up.
    pub async fn connected(&self, timeout: Duration) -> Result<(), DialError> {
        self.channel.connected(timeout).await
    }

    /// Client of the Identity service, for calls that this type does not wrap.
    pub fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// Client of the Controller service.
    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// Client of the GroupController service.
    pub fn group_controller(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// Client of the Node service.
    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// Returns the driver's name and version.
    pub async fn plugin_info(&self) -> Result<GetPluginInfoResponse, Status> {
        let mut identity = self.identity();
        self.call(
            "GetPluginInfo",
            |request| async move { identity.get_plugin_info(request).await },
            GetPluginInfoRequest {},
        )
        .await
    }

    /// Returns whether the driver is ready; a driver that leaves the field out is ready.
    pub async fn probe(&self) -> Result<bool, Status> {
        let mut identity = self.identity();
        let answer = self
            .call("Probe", |request| async move { identity.probe(request).await }, ProbeRequest {})
            .await?;
        Ok(answer.ready.unwrap_or(true))
    }

    /// Returns the driver's facts about this node.
    pub async fn node_info(&self) -> Result<NodeInfo, Status> {
        let mut node = self.node();
        let answer = self
            .call(
                "NodeGetInfo",
                |request| async move { node.node_get_info(request).await },
                NodeGetInfoRequest {},
            )
            .await?;
        Ok(NodeInfo {
            node_id: answer.node_id,
            max_volumes: answer.max_volumes_per_node,
            topology: answer
                .accessible_topology
                .map(|topology| topology.segments)
                .unwrap_or_default(),
        })
    }

    /// Makes a call that this type does not wrap, with the timeout as the call's gRPC deadline. It
    /// continues after its caller has gone if [`Driver::with_calls`] was used.
    pub async fn call<Q, A, F>(
        &self,
        what: &'static str,
        send: impl FnOnce(Request<Q>) -> F,
        message: Q,
    ) -> Result<A, Status>
    where
        Q: Debug,
        F: Future<Output = Result<Response<A>, Status>> + Send + 'static,
        A: Debug + Send + 'static,
    {
        payloads::call(what, &message);
        let answer = match &self.calls {
            Some(calls) => {
                let request = wharf_uds::timed(message, self.timeout);
                let call = wharf_uds::within(self.timeout, what, send(request));
                calls.outlive(call).await.map(Response::into_inner)
            }
            None => self.call_here(what, send, message).await,
        };
        payloads::answer(what, &answer, self.logged);
        answer
    }

    /// Like [`Driver::call`], but the call ends with its caller, and the caller logs it.
    pub async fn call_here<Q, A, F>(
        &self,
        what: &'static str,
        send: impl FnOnce(Request<Q>) -> F,
        message: Q,
    ) -> Result<A, Status>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let request = wharf_uds::timed(message, self.timeout);
        wharf_uds::within(self.timeout, what, send(request)).await.map(Response::into_inner)
    }

    /// Returns the cached fact; otherwise runs `ask` under `lock` and caches its result until the
    /// connection ends.
    pub(crate) async fn cached<T: Clone>(
        &self,
        what: &'static str,
        lock: &AsyncMutex<()>,
        slot: impl Fn(&mut Cache) -> &mut Option<T>,
        ask: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        if let Some(known) = self.known(self.generation(), &slot) {
            return Ok(known);
        }
        // Bound the wait for the lock: a caller that hangs in front must not cost more than the
        // driver's timeout.
        let lock = async { Ok(lock.lock().await) };
        let _guard = wharf_uds::within(self.timeout, what, lock).await?;
        let before = self.generation();
        if let Some(known) = self.known(before, &slot) {
            return Ok(known);
        }
        let answer = ask.await?;
        let after = self.generation();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        // A response from an earlier connection is valid for this call but must not be cached.
        if let Some(after) = after
            && before.is_none_or(|before| before == after)
        {
            if cache.generation != after {
                *cache = Cache { generation: after, ..Cache::default() };
            }
            *slot(&mut cache) = Some(answer.clone());
        }
        Ok(answer)
    }

    fn known<T: Clone>(
        &self,
        generation: Option<u64>,
        slot: impl Fn(&mut Cache) -> &mut Option<T>,
    ) -> Option<T> {
        let generation = generation?;
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.generation != generation {
            *cache = Cache { generation, ..Cache::default() };
        }
        slot(&mut cache).clone()
    }

    fn generation(&self) -> Option<u64> {
        match *self.channel.link().borrow() {
            LinkState::Connected { generation } => Some(generation),
            _ => None,
        }
    }
}

impl Debug for Driver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Driver").field("socket", &self.socket()).finish_non_exhaustive()
    }
}
