//! Ends of containers, as the runtime reports them.
//!
//! Nobody calls for a container that ends by itself. So the proxy keeps a GetContainerEvents stream of its own, for as long as
//! a hook server wants PostStopContainer. What ended while there was no stream is found in the runtime's list each time that
//! one is opened. A runtime without events is asked again after it was restarted; until then the end of a container is found
//! when it is removed or its pod is stopped.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, TryFutureExt};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use wharf_proto::cri::{ContainerEventType, ContainerState};
use wharf_uds::LinkState;

use crate::HookPoint;
use crate::intercept::Interceptor;

const POINT: HookPoint = HookPoint::PostStopContainer;
/// How many ends hook servers are told of at a time.
const CONCURRENCY: usize = 16;
/// The most ends that wait for that. Others are found when the container is removed or its pod is stopped.
const MOST: usize = 10_000;
/// Pauses between streams, doubled after each that was short.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// How long hook servers may take for ends that are being told of when the proxy stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Whether the runtime tells when containers end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventsState {
    /// No hook server wants PostStopContainer.
    #[default]
    NotWanted,
    /// There is no stream of events at the moment.
    Disconnected,
    /// There is a stream of events.
    Followed,
    /// The runtime has no events.
    Unsupported,
}

impl EventsState {
    /// What a person has to know of it.
    pub fn note(self) -> Option<&'static str> {
        (self == Self::Unsupported).then_some(
            "The runtime has no container events: PostStopContainer of a container that ends by itself \
             is sent when the container is removed or its pod is stopped.",
        )
    }
}

/// The task that follows events.
pub(crate) struct FollowedEvents {
    task: JoinSet<()>,
    stop: CancellationToken,
}

impl FollowedEvents {
    /// Follows events until [`stop`](Self::stop), or until a successor begins new calls.
    pub(crate) fn start(interceptor: Arc<Interceptor>) -> Self {
        let (mut task, stop) = (JoinSet::new(), CancellationToken::new());
        task.spawn(follow(interceptor, stop.clone()));
        Self { task, stop }
    }

    /// Stops. Hook servers that are being told have a moment for it.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        let _ = timeout(DRAIN, self.task.join_next()).await;
        self.task.shutdown().await;
    }
}

async fn follow(interceptor: Arc<Interceptor>, stop: CancellationToken) {
    let (ended, ends) = mpsc::channel(MOST);
    let streams = async {
        loop {
            interceptor.chain.until(POINT, true).await;
            interceptor.events.send_replace(EventsState::Disconnected);
            tokio::select! {
                () = interceptor.chain.until(POINT, false) => {}
                () = keep_stream(&interceptor, &ended) => {}
            }
            interceptor.events.send_replace(EventsState::NotWanted);
        }
    };
    let mut notifying = JoinSet::new();
    tokio::select! {
        () = stop.cancelled() => {}
        () = interceptor.calls.passed() => {}
        () = streams => {}
        () = notify_all(&interceptor, ends, &mut notifying) => {}
    }
    while notifying.join_next().await.is_some() {}
}

/// Tells hook servers of the ends that come in.
async fn notify_all(
    interceptor: &Arc<Interceptor>,
    mut ends: mpsc::Receiver<String>,
    notifying: &mut JoinSet<()>,
) {
    loop {
        tokio::select! {
            Some(_) = notifying.join_next() => {}
            Some(id) = ends.recv(), if notifying.len() < CONCURRENCY => {
                let interceptor = interceptor.clone();
                notifying.spawn(async move { interceptor.notify_exit(&id).await });
            }
        }
    }
}

/// Opens a stream whenever the runtime can be reached and there is none.
async fn keep_stream(interceptor: &Interceptor, ended: &mpsc::Sender<String>) {
    let mut link = interceptor.runtime.link();
    let mut pause = SHORTEST;
    while link.wait_for(|state| matches!(state, LinkState::Connected { .. })).await.is_ok() {
        link.mark_unchanged();
        let begun = Instant::now();
        let status = tokio::select! {
            status = read_stream(interceptor, ended) => status,
            _ = link.changed() => Status::unavailable("the connection to the runtime has changed"),
        };
        interceptor.events.send_replace(EventsState::Disconnected);
        if status.code() == Code::Unimplemented {
            interceptor.events.send_replace(EventsState::Unsupported);
            tracing::info!("the runtime has no container events");
            // Another runtime may come.
            let _ = link.changed().await;
            continue;
        }
        let (code, error) = (status.code(), status.message());
        tracing::debug!(?code, error, "container events ended, retrying");
        pause = if begun.elapsed() > LONGEST { SHORTEST } else { (pause * 2).min(LONGEST) };
        sleep(pause).await;
    }
}

/// Reads a stream to its end, and returns why it ended.
async fn read_stream(interceptor: &Interceptor, ended: &mpsc::Sender<String>) -> Status {
    let mut events = pin!(interceptor.recovery.container_events().try_flatten_stream());
    let mut listed = pin!(exited(interceptor).fuse());
    loop {
        tokio::select! {
            // The stream is asked for first: what ends from then on is an event.
            biased;
            event = events.next() => match event {
                Some(Ok(event)) => {
                    interceptor.events.send_replace(EventsState::Followed);
                    if event.container_event_type() == ContainerEventType::ContainerStoppedEvent {
                        send(ended, event.container_id);
                    }
                }
                Some(Err(status)) => return status,
                None => return Status::unavailable("the runtime ended the stream"),
            },
            exited = &mut listed => match exited {
                // A runtime sends nothing before the first event: that there is no error says that it has events.
                Ok(exited) => {
                    interceptor.events.send_replace(EventsState::Followed);
                    exited.into_iter().for_each(|id| send(ended, id));
                }
                Err(status) => return status,
            },
        }
    }
}

/// The containers that have ended, of those that have a record.
async fn exited(interceptor: &Interceptor) -> Result<BTreeSet<String>, Status> {
    let containers = interceptor.recovery.containers().await?;
    let exited = containers.filter(|own| own.state() == ContainerState::ContainerExited);
    let known = |id: &String| interceptor.records.container(id).is_some();
    Ok(exited.map(|container| container.id).filter(known).collect())
}

fn send(ended: &mpsc::Sender<String>, id: String) {
    if ended.try_send(id).is_err() {
        tracing::warn!("too many containers ended at once, hooks follow when they are removed");
    }
}
