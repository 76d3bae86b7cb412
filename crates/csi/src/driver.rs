use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    future::Future,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{Mutex as Turn, watch};
use tonic::{Request, Response, Status};
use wharf_proto::csi::{
    GetPluginInfoRequest, GetPluginInfoResponse, NodeGetInfoRequest, ProbeRequest,
    controller_client::ControllerClient, group_controller_client::GroupControllerClient,
    identity_client::IdentityClient, node_client::NodeClient,
};
use wharf_uds::{Channel, ChannelOptions, DialError, LinkState, RpcMetrics, Silence};

use crate::{CALL_TIMEOUT, Calls, Capabilities, NodeCapabilities, payloads};

/// Answers may carry thousands of volumes; gRPC's own limit of 4 MiB is not the protocol's.
const MAX_MESSAGE: usize = 64 << 20;

/// How a [`Driver`] talks to its socket.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Keep the connection up and reconnect at once, so that its state tells whether the driver lives.
    pub hold: bool,
    /// How long one call may take.
    pub timeout: Duration,
    /// Where each call is counted.
    pub metrics: Option<RpcMetrics>,
}

impl Default for DriverOptions {
    fn default() -> Self {
        Self { hold: false, timeout: CALL_TIMEOUT, metrics: None }
    }
}

/// A CSI driver behind its socket. Clones share the connection and what is known about the driver.
#[derive(Clone)]
pub struct Driver {
    channel: Channel,
    timeout: Duration,
    /// How many bytes of an answer the log shows.
    logged: usize,
    cache: Arc<Mutex<Cache>>,
    pub(crate) turns: Arc<Turns>,
    /// The one connection that calls are made on.
    only_on: Option<watch::Receiver<u64>>,
    /// Where calls go on when their callers are gone.
    calls: Option<Calls>,
}

/// Those who ask for the same fact wait for each other, so that the driver is asked once: when it comes back, all ask.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) plugin: Turn<()>,
    pub(crate) node: Turn<()>,
}

/// What a driver says about the node that it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeInfo {
    /// The node's name in the driver's own words.
    pub node_id: String,
    /// How many volumes fit; 0 leaves the decision to the orchestrator.
    pub max_volumes: i64,
    /// Where the node stands, as topology keys and values.
    pub topology: BTreeMap<String, String>,
}

/// Known facts of one connection.
#[derive(Default)]
pub(crate) struct Cache {
    generation: u64,
    pub(crate) plugin: Option<Capabilities>,
    pub(crate) node: Option<NodeCapabilities>,
}

impl Driver {
    /// A driver at `socket`. Nothing is dialled before the first call, unless the connection is to be held.
    pub fn new(socket: impl AsRef<Path>, options: DriverOptions) -> Self {
        let channel = Channel::new(
            socket.as_ref(),
            ChannelOptions { hold: options.hold, ..ChannelOptions::default() },
        );
        let channel = match options.metrics {
            Some(metrics) => channel.with_metrics(metrics),
            None => channel,
        };
        let (cache, turns) = (Arc::default(), Arc::default());
        let (timeout, logged) = (options.timeout, payloads::MOST);
        Self { channel, timeout, logged, cache, turns, only_on: None, calls: None }
    }

    /// The same driver on the same connection, whose calls end after another time.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The same driver on the same connection, of whose answers the log shows at most so many bytes instead of 8 KiB.
    #[must_use]
    pub fn with_logged_answers(mut self, bytes: usize) -> Self {
        self.logged = bytes;
        self
    }

    /// The same driver on the same connection, which is asked on the connection of this generation only: behind another
    /// one may be another driver. Calls wait, for as long as they may, until the connection that there is is known.
    #[must_use]
    pub fn only_on(mut self, known: watch::Receiver<u64>) -> Self {
        self.channel = self.channel.only_on(known.clone());
        // Who makes a connection known must not wait for those who wait for that.
        self.turns = Arc::default();
        self.only_on = Some(known);
        self
    }

    /// The same driver on the same connection, whose calls go on when their callers are gone and are sent when `calls` allows it.
    #[must_use]
    pub fn with_calls(mut self, calls: Calls) -> Self {
        if let Some(until) = &calls.until {
            self.channel = self.channel.only_until(until.clone());
        }
        self.calls = Some(calls);
        self
    }

    /// The same driver on the same connection, whose answers end `silence`.
    #[must_use]
    pub fn with_silence(mut self, silence: Silence) -> Self {
        self.channel = self.channel.with_silence(silence);
        self
    }

    /// The generation of the connection that calls are made on, now and as it changes, if it is one only.
    pub fn known_generation(&self) -> Option<watch::Receiver<u64>> {
        self.only_on.clone()
    }

    /// The socket of the driver.
    pub fn socket(&self) -> &Path {
        self.channel.path()
    }

    /// The state of the connection, which is the driver's liveness where it is held.
    pub fn link(&self) -> watch::Receiver<LinkState> {
        self.channel.link()
    }

    /// Whether the driver is connected now.
    pub fn is_connected(&self) -> bool {
        matches!(*self.channel.link().borrow(), LinkState::Connected { .. })
    }

    /// Waits until the driver is connected.
    pub async fn connected(&self, timeout: Duration) -> Result<(), DialError> {
        self.channel.connected(timeout).await
    }

    /// The identity service, for calls that this type does not wrap.
    pub fn identity(&self) -> IdentityClient<Channel> {
        IdentityClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// The controller service.
    pub fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// The group controller service.
    pub fn group_controller(&self) -> GroupControllerClient<Channel> {
        GroupControllerClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// The node service.
    pub fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE)
    }

    /// The driver's name and version.
    pub async fn plugin_info(&self) -> Result<GetPluginInfoResponse, Status> {
        let mut identity = self.identity();
        self.call(
            "GetPluginInfo",
            |request| async move { identity.get_plugin_info(request).await },
            GetPluginInfoRequest {},
        )
        .await
    }

    /// Whether the driver is ready; a driver that does not say is ready.
    pub async fn probe(&self) -> Result<bool, Status> {
        let mut identity = self.identity();
        let answer = self
            .call("Probe", |request| async move { identity.probe(request).await }, ProbeRequest {})
            .await?;
        Ok(answer.ready.unwrap_or(true))
    }

    /// What the driver knows about this node.
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

    /// One bounded call that this type does not wrap; the driver is told the deadline, too. It goes on when its caller is gone
    /// if [`Driver::with_calls`] says so.
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

    /// As [`Driver::call`], and ends with its caller, who logs it.
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

    /// The cached fact, or the answer of `ask` in its `turn`, kept for as long as this connection lasts.
    pub(crate) async fn cached<T: Clone>(
        &self,
        what: &'static str,
        turn: &Turn<()>,
        slot: impl Fn(&mut Cache) -> &mut Option<T>,
        ask: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        if let Some(known) = self.known(self.generation(), &slot) {
            return Ok(known);
        }
        // One that hangs before us must not take more of our time than the driver itself may.
        let turn = async { Ok(turn.lock().await) };
        let _turn = wharf_uds::within(self.timeout, what, turn).await?;
        let before = self.generation();
        if let Some(known) = self.known(before, &slot) {
            return Ok(known);
        }
        let answer = ask.await?;
        let after = self.generation();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        // An answer that may stem from an earlier connection is right for this call, but not to be kept.
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
