//! Ends of containers, as the runtime reports them.
//!
//! No call reports that a container ended by itself. So the proxy keeps a GetContainerEvents stream
//! of its own while a hook server wants PostStopContainer. Each time that it opens a stream, it
//! lists containers, to find those that ended without one. A runtime without events is tried again
//! after its restart; until then the end of a container is noticed when it is removed or its pod is
//! stopped.

use std::{collections::BTreeSet, pin::pin, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, TryFutureExt};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use wharf_proto::cri::{ContainerEventType, ContainerState};
use wharf_uds::LinkState;

use crate::{HookPoint, intercept::Interceptor};

const POINT: HookPoint = HookPoint::PostStopContainer;
/// Ends that hook servers are notified of concurrently.
const CONCURRENCY: usize = 16;
/// The most waiting ends. Others are noticed when the container is removed or its pod is stopped.
const MOST: usize = 10_000;
/// Pauses between streams, doubled after each that was short.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// The time for notifications under way when the proxy stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Whether the runtime reports ends of containers.
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
    /// The warning for the operator, if there is one.
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

    /// Stops. Notifications under way have a moment to finish.
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

/// Notifies hook servers of reported ends.
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
            // A restarted runtime may have events.
            let _ = link.changed().await;
            continue;
        }
        let (code, error) = (status.code(), status.message());
        tracing::debug!(?code, error, "container events ended, retrying");
        pause = if begun.elapsed() > LONGEST { SHORTEST } else { (pause * 2).min(LONGEST) };
        sleep(pause).await;
    }
}

/// Reads a stream to its end, and returns the reason for the end.
async fn read_stream(interceptor: &Interceptor, ended: &mpsc::Sender<String>) -> Status {
    let mut events = pin!(interceptor.recovery.container_events().try_flatten_stream());
    let mut listed = pin!(exited(interceptor).fuse());
    loop {
        tokio::select! {
            // The stream is opened before the list: later ends arrive as events.
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
                // A runtime sends nothing before the first event: without an error it supports
                // events.
                Ok(exited) => {
                    interceptor.events.send_replace(EventsState::Followed);
                    exited.into_iter().for_each(|id| send(ended, id));
                }
                Err(status) => return status,
            },
        }
    }
}

/// The recorded containers that have ended.
async fn exited(interceptor: &Interceptor) -> Result<BTreeSet<String>, Status> {
    let containers = interceptor.recovery.containers().await?;
    let exited = containers.filter(|own| own.state() == ContainerState::ContainerExited);
    let known = |id: &String| interceptor.records.container(id).is_some();
    Ok(exited.map(|container| container.id).filter(known).collect())
}

fn send(ended: &mpsc::Sender<String>, id: String) {
    if ended.try_send(id).is_err() {
        tracing::warn!("too many containers ended, notifying hooks at removal");
    }
}
