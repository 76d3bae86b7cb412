//! A call as a tap shows it.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tonic::Code;
use wharf_facts::text::cut;
use wharf_uds::{Carried, code_name};

use super::Taps;
use crate::{
    explain::{Made, micros, time},
    identity::Identity,
};

/// The longest name of a method: callers choose them.
const LONGEST_METHOD: usize = 128;

/// A call, or one end of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TapCall {
    /// What happened.
    pub event: TapEvent,
    /// When it happened: of a call, when it ended.
    pub time: String,
    /// The method with its service, as the caller wrote it.
    pub method: String,
    /// The pod or container, of calls that the proxy reads.
    #[serde(flatten)]
    pub identity: Identity,
    /// Microseconds from the call's headers to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_us: Option<u64>,
    /// Of these, those for hook servers, of calls that the proxy reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks_us: Option<u64>,
    /// Of these, those of the runtime, of calls that the proxy reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_us: Option<u64>,
    /// The gRPC code that the caller got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Whether the caller gave up first.
    #[serde(default)]
    pub client_disconnected: bool,
}

/// What a line of a tap is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TapEvent {
    /// A call has ended.
    Call,
    /// A call that streams has begun.
    StreamStarted,
    /// A call that streams has ended.
    StreamEnded,
}

/// A call under way that somebody watches. Dropped, it was cut.
pub(crate) struct Tapped {
    taps: Taps,
    begun: Instant,
    call: TapCall,
}

impl Tapped {
    pub(super) fn begin(taps: Taps, method: &str) -> Self {
        let mut call = TapCall {
            event: TapEvent::Call,
            time: String::new(),
            method: cut(method, LONGEST_METHOD).into_owned(),
            identity: Identity::default(),
            total_us: None,
            hooks_us: None,
            runtime_us: None,
            code: None,
            client_disconnected: false,
        };
        if is_stream(method) {
            call.event = TapEvent::StreamStarted;
            taps.show(TapCall { time: time(Timestamp::now()), ..call.clone() });
            call.event = TapEvent::StreamEnded;
        }
        let code = code_name(Code::Cancelled).to_owned();
        Self { taps, begun: Instant::now(), call: TapCall { code: Some(code), ..call } }
    }

    /// Notes what the call is about.
    pub(crate) fn identify(&mut self, identity: Option<Identity>) {
        self.call.identity = identity.unwrap_or_default();
    }

    /// Notes how a call went that the proxy reads.
    pub(crate) fn intercepted(
        &mut self,
        in_hooks: Duration,
        in_runtime: Duration,
        is_abandoned: bool,
        made: &Made,
    ) {
        self.call.hooks_us = Some(micros(in_hooks));
        self.call.runtime_us = Some(micros(in_runtime));
        self.call.client_disconnected = is_abandoned;
        self.call.identity.add(made);
    }

    /// Shows the end of the call.
    pub(crate) fn finish(mut self, Carried { code, abandoned }: Carried) {
        self.call.code = Some(code_name(code).to_owned());
        self.call.client_disconnected |= abandoned;
    }
}

impl Drop for Tapped {
    fn drop(&mut self) {
        let total_us = Some(micros(self.begun.elapsed()));
        let time = time(Timestamp::now());
        self.taps.show(TapCall { time, total_us, ..self.call.clone() });
    }
}

/// Whether a method answers with a stream, by its name: those of the runtime interface that do are
/// called GetContainerEvents, or begin with Stream.
fn is_stream(method: &str) -> bool {
    let name = method.rsplit('/').next().unwrap_or_default();
    name == "GetContainerEvents" || name.starts_with("Stream")
}
