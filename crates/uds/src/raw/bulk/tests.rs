use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Wake,
};

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const FRAME: usize = 16 << 10;

/// Counts how often it is read and written.
struct Counted {
    stream: DuplexStream,
    reads: usize,
    writes: usize,
}

fn counted(room: usize) -> (Bulk<Counted>, DuplexStream) {
    let (stream, peer) = duplex(room);
    (Bulk::new(Counted { stream, reads: 0, writes: 0 }), peer)
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.reads += 1;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes += 1;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bytes of which each differs from its neighbours.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[tokio::test]
async fn what_is_small_leaves_at_once() {
    let (mut bulk, mut peer) = counted(1 << 20);
    bulk.write_all(b"small").await.unwrap();
    let mut came = [0; 5];
    peer.read_exact(&mut came).await.unwrap();
    assert_eq!((&came, bulk.stream.writes), (b"small", 1));
    assert_eq!(bulk.behind.buffer.capacity(), 0);
}

#[tokio::test]
async fn frames_leave_together_and_the_flusher_is_woken_for_it() {
    let (mut bulk, mut peer) = counted(1 << 20);
    let woken = Arc::new(Woken::default());
    let waker = woken.clone().into();
    let mut cx = Context::from_waker(&waker);
    let sent = pattern(3 * FRAME);
    for frame in sent.chunks(FRAME) {
        bulk.write_all(frame).await.unwrap();
        assert!(Pin::new(&mut bulk).poll_flush(&mut cx).is_ready());
    }
    bulk.write_all(b"trailers").await.unwrap();
    assert!(Pin::new(&mut bulk).poll_flush(&mut cx).is_ready());
    assert_eq!((bulk.stream.writes, woken.0.load(Ordering::Relaxed)), (0, 4));

    assert!(Pin::new(&mut bulk).poll_flush(&mut cx).is_ready());
    assert_eq!((bulk.stream.writes, woken.0.load(Ordering::Relaxed)), (1, 4));
    let mut came = vec![0; sent.len() + 8];
    peer.read_exact(&mut came).await.unwrap();
    assert_eq!(came, [sent.as_slice(), b"trailers"].concat());
}

#[tokio::test]
async fn a_full_buffer_leaves_unasked() {
    let (mut bulk, mut peer) = counted(1 << 20);
    let sent = pattern(1 << 20);
    bulk.write_all(&sent).await.unwrap();
    assert!(bulk.stream.writes.abs_diff(sent.len() / ROOM) <= 1, "{} writes", bulk.stream.writes);
    bulk.shutdown().await.unwrap();
    let mut came = Vec::new();
    peer.read_to_end(&mut came).await.unwrap();
    assert!(came == sent);
}

#[tokio::test]
async fn what_flows_is_read_ahead_and_then_no_more() {
    let (mut bulk, mut peer) = counted(1 << 20);
    let sent = pattern(1 << 20);
    peer.write_all(&sent).await.unwrap();
    let mut came = vec![0; sent.len()];
    for piece in came.chunks_mut(FRAME / 2) {
        bulk.read_exact(piece).await.unwrap();
    }
    assert!(came == sent);
    assert!(bulk.stream.reads <= 2 + sent.len() / ROOM, "{} reads", bulk.stream.reads);
    for small in [b"a", b"b"] {
        peer.write_all(small).await.unwrap();
        assert_eq!([bulk.read_u8().await.unwrap()], *small);
    }
    assert_eq!(bulk.ahead.buffer.capacity(), 0);
    drop(peer);
    assert_eq!(bulk.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_peer_that_left_is_an_error() {
    let (mut bulk, peer) = counted(1 << 10);
    drop(peer);
    bulk.write_all(&pattern(FRAME)).await.unwrap();
    assert_eq!(bulk.shutdown().await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any sizes of pieces, and however few bytes the other side takes at a time.
    #[test]
    fn bytes_come_as_they_were_sent(
        pieces in proptest::collection::vec(1_usize..3 * FRAME, 1..40),
        asked in 1_usize..3 * FRAME,
        room in 1_usize..2 * ROOM,
    ) {
        let sent = pattern(pieces.iter().sum());
        let came = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let (to, from) = duplex(room);
            let (mut to, mut from) = (Bulk::new(to), Bulk::new(from));
            let write = async {
                let mut left = sent.as_slice();
                for piece in &pieces {
                    let (now, later) = left.split_at(*piece);
                    to.write_all(now).await.unwrap();
                    to.flush().await.unwrap();
                    left = later;
                }
                to.shutdown().await.unwrap();
            };
            let read = async {
                let (mut came, mut space) = (Vec::new(), vec![0; asked]);
                loop {
                    match from.read(&mut space).await.unwrap() {
                        0 => break came,
                        count => came.extend_from_slice(&space[..count]),
                    }
                }
            };
            tokio::join!(write, read).1
        });
        prop_assert!(came == sent);
    }
}
