//! The process that hands over.

use std::{future::Future, io, path::Path, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use tokio::{net::UnixStream, sync::mpsc, time::timeout};
use tokio_util::sync::CancellationToken;
use wharf_uds::{Relay, RelayOptions};

use super::{
    HandOverError,
    channel::{Reader, Writer, lines},
    message::{FromNew, FromOld, PROTOCOL},
};
use crate::{
    config::{ConfigHandle, FileState},
    intercept::Interceptor,
};

/// How long a successor may take from its start until it is ready.
const READY: Duration = Duration::from_secs(15);
/// How long a successor may take to read the records, while calls go on.
const COPY: Duration = Duration::from_secs(10);
/// How long calls about pods and containers may wait until the successor serves. It knows the
/// records by then.
const TAKE: Duration = Duration::from_millis(500);
/// How long the folder of hook servers may take.
const FOLDER: Duration = Duration::from_secs(5);
/// How long a successor may take to make room for the word that the hand-over is called off. Calls
/// wait meanwhile.
const LAST_WORD: Duration = Duration::from_millis(100);
/// How long calls that waited may take to be on their way to the successor.
const PASSED: Duration = Duration::from_secs(1);

/// Hands the calls of a proxy over to its successor.
#[derive(Clone, Debug)]
pub struct HandOver {
    pub(crate) interceptor: Arc<Interceptor>,
    pub(crate) config: ConfigHandle,
}

/// The way to the successor, after the hand-over.
#[derive(Debug)]
pub struct Followed {
    reader: Reader<FromNew>,
    writer: Writer<FromOld>,
    outgoing: mpsc::UnboundedReceiver<FromOld>,
    interceptor: Arc<Interceptor>,
}

impl HandOver {
    /// Hands over to a process that has the sockets, and [`Hello`](super::Hello) on this channel.
    /// `listen` is where the successor serves; `release` leaves the sockets to it.
    ///
    /// Until it serves, this process accepts connections and carries calls. Calls that are
    /// intercepted wait from the moment on at which the successor is told what is under way:
    /// for some milliseconds, since it has read the records by then, and for less than a second
    /// if it hangs.
    ///
    /// If it comes to nothing, also because of `stop`, `end_successor` is called before calls go on
    /// here; with whether the successor may have begun to serve, or cannot be told that it must
    /// not, so that it has to be killed.
    ///
    /// # Errors
    /// When the successor is not ready in time, or fails. This process serves on as before.
    pub async fn run<E: Future<Output = ()>>(
        &self,
        channel: UnixStream,
        listen: &Path,
        release: impl FnOnce(),
        end_successor: impl FnOnce(bool) -> E,
        stop: &CancellationToken,
    ) -> Result<Followed, HandOverError> {
        let (mut reader, mut writer) = lines(channel);
        let (messages, mut outgoing) = mpsc::unbounded_channel();
        let mut may_serve = false;
        let thaw = Thaw(&self.interceptor);
        let taken = async {
            ready(&mut reader).await?;
            let left = timeout(FOLDER, self.config.keep_state(false)).await;
            left.ok().filter(|left| *left).ok_or(HandOverError::StateFolder)?;
            self.copy(&mut writer).await?;
            self.interceptor.calls.freeze(messages.clone());
            self.say_rest(&messages);
            let taken = self.pass(&mut reader, &mut writer, &mut outgoing, &mut may_serve);
            let late = HandOverError::Silent { step: "serve", limit: TAKE };
            timeout(TAKE, taken).await.unwrap_or(Err(late))
        };
        let taken = stop.run_until_cancelled(taken).await;
        if let Err(error) = taken.unwrap_or(Err(HandOverError::Stopped)) {
            let told = timeout(LAST_WORD, writer.send(&FromOld::Abort(error.to_string()))).await;
            // One that stands still and cannot be told would later take the end of the channel for
            // that of this process, and serve beside it.
            let is_deaf = !matches!(told, Ok(Ok(())));
            // One that has closed its end, or says that it failed, does not serve.
            let is_over = matches!(error, HandOverError::Ended | HandOverError::Failed(_));
            end_successor((may_serve || is_deaf) && !is_over).await;
            drop(thaw);
            // A folder that hangs is written once it does not.
            let _ = timeout(FOLDER, self.config.keep_state(true)).await;
            return Err(error);
        }
        std::mem::forget(thaw);
        release();
        let relay = Arc::new(Relay::new(listen, RelayOptions::default()));
        self.interceptor.calls.pass_to(relay);
        let passed = timeout(PASSED, self.interceptor.calls.waiting_are_passed()).await;
        if passed.is_err() {
            tracing::warn!("calls that waited for the successor are not on their way yet");
        }
        Ok(Followed { reader, writer, outgoing, interceptor: self.interceptor.clone() })
    }

    /// Sends what there is to say until the successor serves.
    async fn pass(
        &self,
        reader: &mut Reader<FromNew>,
        writer: &mut Writer<FromOld>,
        outgoing: &mut mpsc::UnboundedReceiver<FromOld>,
        may_serve: &mut bool,
    ) -> Result<(), HandOverError> {
        loop {
            tokio::select! {
                biased;
                message = reader.next() => match message? {
                    Some(FromNew::Loaded) => {
                        *may_serve = true;
                        writer.send(&FromOld::Yours).await?;
                    }
                    Some(FromNew::Serving) => return Ok(()),
                    Some(FromNew::Noted { call }) => self.interceptor.calls.noted(call),
                    Some(FromNew::Failed(reason)) => return Err(HandOverError::Failed(reason)),
                    Some(FromNew::Ready { .. } | FromNew::Leave) => {
                        return Err(HandOverError::Confused);
                    }
                    None => return Err(HandOverError::Ended),
                },
                Some(message) = outgoing.recv() => writer.send(&message).await?,
            }
        }
    }

    /// Sends the records while calls go on. Their changes are noted from here on.
    async fn copy(&self, writer: &mut Writer<FromOld>) -> Result<(), HandOverError> {
        let records = self.interceptor.records.entries();
        let copied = async {
            for record in records {
                writer.send(&FromOld::Record(record)).await?;
            }
            Ok::<_, io::Error>(())
        };
        let copied = timeout(COPY, copied).await;
        let late = || HandOverError::Silent { step: "read the records", limit: COPY };
        copied.map_err(|_| late())?.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => late(),
            _ => error.into(),
        })
    }

    /// Queues what the successor does not know yet.
    fn say_rest(&self, messages: &mpsc::UnboundedSender<FromOld>) {
        let status = self.config.status();
        let forgotten = status.servers.iter().filter(|it| it.state == FileState::Forgotten);
        let forgotten = forgotten.map(|server| FromOld::Forgotten(server.name.clone()));
        let records = self.interceptor.records.changed().into_iter().map(FromOld::Record);
        let versions = self.config.versions();
        let versions = versions.iter().map(|(file, text)| FromOld::Version {
            file: file.clone(),
            text: BASE64_STANDARD.encode(text),
        });
        for message in versions.chain(forgotten).chain(records).chain([FromOld::All]) {
            // The receiver is with the caller.
            let _ = messages.send(message);
        }
    }
}

/// Lets calls begin again when a hand-over comes to nothing, however that happens.
struct Thaw<'a>(&'a Interceptor);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        self.0.calls.thaw();
    }
}

async fn ready(reader: &mut Reader<FromNew>) -> Result<(), HandOverError> {
    let message = timeout(READY, reader.next()).await;
    match message.map_err(|_| HandOverError::Silent { step: "get ready", limit: READY })?? {
        Some(FromNew::Ready { protocol: PROTOCOL }) => Ok(()),
        Some(FromNew::Ready { protocol }) => Err(HandOverError::Protocol(protocol)),
        Some(FromNew::Failed(reason)) => Err(HandOverError::Failed(reason)),
        Some(_) => Err(HandOverError::Confused),
        None => Err(HandOverError::Ended),
    }
}

impl Followed {
    /// Tells the successor what calls change that end here, until it wants this process to leave or
    /// is gone.
    pub async fn follow(mut self) {
        loop {
            let sent = tokio::select! {
                message = self.reader.next() => match message {
                    Ok(Some(FromNew::Noted { call })) => {
                        self.interceptor.calls.noted(call);
                        continue;
                    }
                    Ok(Some(FromNew::Leave)) => break,
                    Ok(Some(_)) => continue,
                    Ok(None) => {
                        tracing::info!("the successor is gone");
                        break self.interceptor.calls.forget_successor();
                    }
                    Err(error) => Err(error),
                },
                Some(message) = self.outgoing.recv() => self.writer.send(&message).await,
            };
            if let Err(error) = sent {
                let error: io::Error = error;
                tracing::warn!(%error, "failed to tell the successor of a call");
                break self.interceptor.calls.forget_successor();
            }
        }
    }
}
