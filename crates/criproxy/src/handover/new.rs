//! The process that takes over.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use tokio::{net::UnixStream, time::timeout};
use tokio_util::sync::CancellationToken;
use wharf_uds::LinkState;

use super::{
    HandOverError, Hello,
    channel::{Reader, Writer, lines},
    message::{FromNew, FromOld, PROTOCOL},
    scope::Scope,
};
use crate::{Proxy, config::ConfigHandle, intercept::Interceptor};

/// How long the old process may take for a step.
const STEP: Duration = Duration::from_secs(30);
/// How long the first attempt to reach the runtime is waited for.
const RUNTIME: Duration = Duration::from_secs(3);

/// The process that serves now, and has passed its sockets on to this one.
#[derive(Debug)]
pub struct Predecessor {
    reader: Reader<FromOld>,
    writer: Writer<FromNew>,
    hello: Hello,
}

/// The way to a predecessor that finishes its calls.
#[derive(Debug)]
pub struct Finishing {
    channel: Option<(Reader<FromOld>, Writer<FromNew>)>,
    proxy: std::sync::Arc<Interceptor>,
}

impl Predecessor {
    /// Hears what comes along with the sockets.
    ///
    /// # Errors
    /// When the old process does not say, or in a way that this version does not know.
    pub async fn greet(channel: UnixStream) -> Result<Self, HandOverError> {
        let (mut reader, writer) = lines::<Hello, FromNew>(channel);
        let hello = timeout(STEP, reader.next()).await;
        let hello = hello.map_err(|_| HandOverError::Silent { step: "begin", limit: STEP })??;
        let hello = hello.ok_or(HandOverError::Ended)?;
        let mut predecessor = Self { reader: reader.then(), writer, hello };
        let protocol = predecessor.hello.protocol;
        if protocol != PROTOCOL {
            predecessor.fail(&HandOverError::Protocol(protocol).to_string()).await;
            return Err(HandOverError::Protocol(protocol));
        }
        Ok(predecessor)
    }

    /// What comes along with the sockets.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Tells the old process that this one cannot take over, and why.
    pub async fn fail(&mut self, reason: &str) {
        // If it is gone, nobody needs to know.
        let _ = self.writer.send(&FromNew::Failed(reason.to_owned())).await;
    }

    /// Takes the records, and the right to serve.
    ///
    /// An old process that dies in the meantime leaves the sockets to this one.
    ///
    /// # Errors
    /// When the old process calls it off, or makes no progress.
    pub async fn take(mut self, proxy: &Proxy) -> Result<Finishing, HandOverError> {
        let (interceptor, config) = (proxy.interceptor.clone(), proxy.config.handle());
        reach_runtime(&interceptor).await;
        let taken = match self.writer.send(&FromNew::Ready { protocol: PROTOCOL }).await {
            Ok(()) => self.load(&interceptor, &config).await,
            Err(error) => Err(error.into()),
        };
        let taken = match taken {
            Err(HandOverError::Ended) => self.last_words().await,
            taken => taken,
        };
        match taken {
            Ok(()) => {}
            Err(HandOverError::Ended) => {
                tracing::warn!("the proxy before this one died while it handed over: serving");
                abandon(&interceptor);
                config.keep_state(true).await;
                return Ok(Finishing { channel: None, proxy: interceptor });
            }
            Err(error) => {
                self.fail(&error.to_string()).await;
                return Err(error);
            }
        }
        config.keep_state(true).await;
        let channel = (self.reader, self.writer);
        Ok(Finishing { channel: Some(channel), proxy: interceptor })
    }

    /// Why the old process has closed its end: one that has called it off lives, and has said so.
    async fn last_words(&mut self) -> Result<(), HandOverError> {
        loop {
            match timeout(STEP, self.reader.next()).await {
                Ok(Ok(Some(FromOld::Abort(reason)))) => {
                    return Err(HandOverError::Aborted(reason));
                }
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => return Err(HandOverError::Ended),
                // It lives, or whether it does cannot be told: two that serve are worse than one
                // that does not.
                Ok(Err(error)) => return Err(HandOverError::Channel(error)),
                Err(_) => return Err(HandOverError::Silent { step: "end", limit: STEP }),
            }
        }
    }

    async fn load(
        &mut self,
        interceptor: &Interceptor,
        config: &ConfigHandle,
    ) -> Result<(), HandOverError> {
        loop {
            let message = timeout(STEP, self.reader.next()).await;
            let message =
                message.map_err(|_| HandOverError::Silent { step: "hand over", limit: STEP })??;
            match message.ok_or(HandOverError::Ended)? {
                FromOld::Busy { call, scope } => {
                    interceptor.predecessor.begin(call, scope, &interceptor.calls);
                }
                FromOld::Version { file, text } => {
                    let adopted = match BASE64_STANDARD.decode(text) {
                        Ok(text) => config.adopt(file.clone(), text).await,
                        Err(error) => Err(error.to_string()),
                    };
                    adopted.map_err(|why| HandOverError::Version { file, why })?;
                }
                FromOld::Forgotten(server) => {
                    if let Err(reason) = config.forget(server.clone()).await {
                        tracing::info!(server, reason, "a forgotten hook server is back");
                    }
                }
                FromOld::Record(entry) => take_entry(interceptor, entry),
                FromOld::All => self.writer.send(&FromNew::Loaded).await?,
                FromOld::Yours => return Ok(self.writer.send(&FromNew::Serving).await?),
                FromOld::Ended { call, records } => {
                    note(interceptor, &mut self.writer, call, records).await?;
                }
                FromOld::Abort(reason) => return Err(HandOverError::Aborted(reason)),
            }
        }
    }
}

impl Finishing {
    /// Whether the old process died before it had handed over.
    pub fn is_bereft(&self) -> bool {
        self.channel.is_none()
    }

    /// Takes the records of calls that the old process finishes, until it is gone. It is asked to
    /// leave at once when `leave` is cancelled.
    ///
    /// # Errors
    /// When the old process did not hear that this one serves, and serves on: this one has to stop.
    pub async fn follow(self, leave: CancellationToken) -> Result<(), HandOverError> {
        let Finishing { channel, proxy } = self;
        let Some((mut reader, mut writer)) = channel else { return Ok(()) };
        let mut asked = false;
        loop {
            let message = tokio::select! {
                () = leave.cancelled(), if !asked => {
                    asked = true;
                    if writer.send(&FromNew::Leave).await.is_err() {
                        break;
                    }
                    continue;
                }
                message = reader.next() => message,
            };
            let noted = match message {
                Ok(Some(FromOld::Ended { call, records })) => {
                    note(&proxy, &mut writer, call, records).await
                }
                Ok(Some(FromOld::Abort(reason))) => return Err(HandOverError::Aborted(reason)),
                Ok(Some(_)) => continue,
                Ok(None) => break,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = noted {
                tracing::warn!(%error, "failed to follow the proxy before this one");
                break;
            }
        }
        abandon(&proxy);
        Ok(())
    }
}

/// The records of a call that has ended are in force before others of its scope go on, and before
/// it is answered.
async fn note(
    interceptor: &Interceptor,
    writer: &mut Writer<FromNew>,
    call: u64,
    records: Vec<crate::record::Entry>,
) -> Result<(), HandOverError> {
    records.into_iter().for_each(|entry| take_entry(interceptor, entry));
    interceptor.predecessor.end(call).await;
    Ok(writer.send(&FromNew::Noted { call }).await?)
}

fn take_entry(interceptor: &Interceptor, entry: crate::record::Entry) {
    if let Err(error) = interceptor.records.take(entry) {
        tracing::warn!(error, "failed to take over a record: the runtime will be asked");
    }
}

/// The old process is gone. What it was busy with is asked of the runtime.
fn abandon(interceptor: &Interceptor) {
    let Interceptor { records, overlooked, predecessor, .. } = interceptor;
    predecessor.abandon(|scope| match scope {
        Scope::NewPod(_) | Scope::NewContainer(_) => {}
        Scope::Container { id, .. } => {
            records.forget_container(id);
            overlooked.note(id.clone());
        }
        Scope::Pod(id) => {
            records.members_of(id).into_iter().for_each(|member| overlooked.note(member));
            records.forget_pod(id);
        }
    });
}

/// Waits until the runtime is reached, or is known not to be: the first calls need not wait for
/// that.
async fn reach_runtime(interceptor: &Interceptor) {
    let mut link = interceptor.runtime.link();
    let is_known =
        |state: &LinkState| matches!(state, LinkState::Connected { .. } | LinkState::Down { .. });
    // A runtime that hangs is no reason not to serve.
    let _ = timeout(RUNTIME, link.wait_for(is_known)).await;
}
