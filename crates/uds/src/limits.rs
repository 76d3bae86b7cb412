//! HTTP/2 limits of both sides.
//!
//! hyper's defaults suit a public web server. On a node they cut off long error details, large
//! messages and bursts of cancelled calls. Requests have much lower limits than answers: a client
//! decides how much work its requests make, and a proxy repeats that work at the runtime.

use std::time::Duration;

/// Header list of an answer: 1 MB of error details has to pass, with room for HPACK's overhead.
pub(crate) const ANSWER_HEADERS: u32 = 8 << 20;
/// Header list of a request. Kubelets, CRI and CSI clients send less than 2 KiB, and 8 KiB of
/// baggage with tracing. h2 answers a larger list with HTTP status 431, and ends the connection at
/// four times the size.
pub(crate) const REQUEST_HEADERS: u32 = 64 << 10;
/// Header fields of a request. With HPACK a field may take one byte on the wire.
pub(crate) const REQUEST_FIELDS: usize = 128;
/// Header lists of all requests under way that a listener relays: HPACK may compress them less on
/// the way to the server than on the way here. Enough for eight thousand calls of a kubelet.
pub(crate) const ALL_REQUEST_HEADERS: usize = 4 << 20;
/// Header lists of all requests under way of one process: it takes four processes to keep out
/// others.
pub(crate) const CLIENT_REQUEST_HEADERS: usize = ALL_REQUEST_HEADERS / 4;
/// The longest time without a byte of a message that is read whole.
pub(crate) const MESSAGE_SILENCE: Duration = Duration::from_secs(10);

/// Calls in flight on one connection.
pub(crate) const STREAMS: u32 = 1024;
/// Streams that a client may reset in a burst: twice the calls of its connection. A cancelled batch
/// must not end the connection.
pub(crate) const RESETS: u32 = 2 * STREAMS;
/// The time after which a client may reset one more stream.
pub(crate) const RESET_EVERY: Duration = Duration::from_millis(4);
/// Calls that a process may give up in a burst, after they were relayed and before they were
/// answered. A kubelet that stops gives up a few hundred at most.
pub(crate) const GIVEN_UP: u32 = 512;
/// The time after which a process may give up one more call.
pub(crate) const GIVEN_UP_EVERY: Duration = Duration::from_millis(10);
/// The longest time for which a process is restrained after the last call that it gave up.
pub(crate) const LONGEST_RESTRAINT: Duration = Duration::from_secs(10);
/// Connections of a restrained process that wait to be read. More are closed.
pub(crate) const WAITING: usize = 8;
/// Calls in flight on all connections of a process.
pub(crate) const CLIENT_CALLS: usize = 2 * STREAMS as usize;
/// Streams that h2 resets for errors of the client, over the life of a connection.
pub(crate) const ERRORS: usize = RESETS as usize;
/// The same for a server that we call, which is trusted more than clients.
pub(crate) const SERVER_RESETS: usize = 8192;

/// Bytes of a client's frames that use up one of the 128 units of a task's tokio budget. DATA is
/// not counted: small frames make most of the work.
pub(crate) const BYTES_PER_STEP: usize = 256;

/// Flow-control windows: a 16 MiB message takes few round trips.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
pub(crate) const CONNECTION_WINDOW: u32 = 8 << 20;
/// The window of a connection that carries the calls of many clients, the most that HTTP/2 allows.
/// Readers that stall hold what their streams' windows let in, and it takes two thousand of them to
/// stop the others.
pub(crate) const SHARED_WINDOW: u32 = (1 << 31) - 1;
/// How long a client may take to send the HTTP/2 preface, its first bytes.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// The same for a client that connects while the server is closing.
pub(crate) const LAST_HANDSHAKE: Duration = Duration::from_secs(1);
/// How long a client may take to close a connection that this end has closed, so that it reads its
/// last answers.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
/// How many bytes such a client may still send.
pub(crate) const LINGER_BYTES: usize = 1 << 20;
/// The largest frame that we announce, the minimum that HTTP/2 allows. The authority repair buffers
/// at most one HEADERS frame of this size.
pub(crate) const FRAME: u32 = 16_384;
