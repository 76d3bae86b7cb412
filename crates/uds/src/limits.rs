//! HTTP/2 limits of both sides. hyper's defaults suit a web server that strangers reach; on a
//! node they cut error details, big messages and storms of cancelled calls.

use std::time::Duration;

/// Header list of a message: 1 MB of metadata has to pass, with room for HPACK's overhead.
pub(crate) const HEADER_LIST: u32 = 8 << 20;
/// Calls in flight on one connection.
pub(crate) const STREAMS: u32 = 4096;
/// Streams that the peer reset before they were accepted, and those reset for a local error. A
/// cancelled batch must not end in a GOAWAY; at most all streams of a connection, twice over.
pub(crate) const PENDING_RESETS: usize = 2 * STREAMS as usize;
/// Flow-control windows: a 16 MiB message takes few round trips.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
pub(crate) const CONNECTION_WINDOW: u32 = 8 << 20;
/// The window of a connection that carries the calls of many clients, the most that HTTP/2 allows. Readers that stall
/// hold what their streams' windows let in, and it takes two thousand of them to stop the others.
pub(crate) const SHARED_WINDOW: u32 = (1 << 31) - 1;
/// How long a client may take to say that it speaks HTTP/2; it does so before anything else.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// The same for a client that has connected when the server is about to close.
pub(crate) const LAST_HANDSHAKE: Duration = Duration::from_secs(1);
/// The largest frame that we announce, which is the least that HTTP/2 allows. The authority
/// repair holds one HEADERS frame of this size at most.
pub(crate) const FRAME: u32 = 16_384;
