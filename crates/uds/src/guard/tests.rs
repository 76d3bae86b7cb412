use std::{
    collections::VecDeque,
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use proptest::{collection::vec, prelude::*};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::Guarded;
use crate::authority::huffman;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client's bytes, and the bytes expected after the guard.
#[derive(Clone)]
struct Wire {
    sent: Vec<u8>,
    expected: Vec<u8>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = &self.sent[..self.sent.len().min(400)];
        write!(f, "{} bytes: {}", self.sent.len(), start.escape_ascii())
    }
}

fn literal(string: &[u8], coded: bool) -> Vec<u8> {
    let bytes = if coded { huffman::encode(string) } else { string.to_vec() };
    assert!(bytes.len() < 127, "one length byte");
    [vec![bytes.len() as u8 | if coded { 0x80 } else { 0 }], bytes].concat()
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

#[derive(Clone, Debug)]
struct Headers {
    authority: (&'static str, &'static str),
    coded: bool,
    named: bool,
    padding: Option<u8>,
    priority: bool,
    /// Bytes of an extra header, which can bring the frame over the limit.
    extra: usize,
}

impl Headers {
    fn frame(&self, authority: &str) -> Vec<u8> {
        let mut payload: Vec<u8> = self.padding.into_iter().collect();
        if self.priority {
            payload.extend([0, 0, 0, 0, 16]);
        }
        payload.extend([0x83, 0x86]);
        payload.extend(if self.named {
            [vec![0x40], literal(b":authority", self.coded)].concat()
        } else {
            vec![0x41]
        });
        payload.extend(literal(authority.as_bytes(), self.coded));
        payload.extend([0x00, 1, b'x', 0x7f, 0x80 | (self.extra & 0x7f) as u8]);
        payload.push((self.extra >> 7) as u8 & 0x7f | 0x80);
        payload.push((self.extra >> 14) as u8);
        payload.resize(payload.len() + self.extra + 127, b'v');
        payload.resize(payload.len() + usize::from(self.padding.unwrap_or(0)), 0);
        let flags = 0x4 | self.padding.map_or(0, |_| 0x8) | if self.priority { 0x20 } else { 0 };
        frame(1, flags, &payload)
    }

    fn wire(&self) -> Wire {
        let (dialled, repaired) = self.authority;
        let sent = self.frame(dialled);
        let fits = sent.len() - 9 <= 16_384;
        let expected = self.frame(if fits { repaired } else { dialled });
        Wire { sent, expected }
    }
}

fn headers() -> impl Strategy<Value = Wire> {
    let authorities = [
        ("%2Ftmp%2Fx%2Fplugin.sock", "-2Ftmp-2Fx-2Fplugin.sock"),
        ("/var/lib/kubelet/plugins/a/csi.sock", "-var-lib-kubelet-plugins-a-csi.sock"),
        ("%2Fa:b[c]", "-2Faxb~c~"),
        ("localhost", "localhost"),
        ("[::1]:80", "[::1]:80"),
        ("host:8080", "host:8080"),
    ];
    let extra = prop_oneof![0..200usize, 16_000..16_500usize];
    (
        prop::sample::select(authorities.to_vec()),
        any::<bool>(),
        any::<bool>(),
        any::<Option<u8>>(),
        any::<bool>(),
        extra,
    )
        .prop_map(|(authority, coded, named, padding, priority, extra)| {
            Headers { authority, coded, named, padding, priority, extra }.wire()
        })
}

fn other_frame() -> impl Strategy<Value = Wire> {
    let kind = prop_oneof![Just(0u8), 2..12u8];
    (kind, any::<u8>(), vec(any::<u8>(), 0..300)).prop_map(|(kind, flags, payload)| {
        let sent = frame(kind, flags, &payload);
        Wire { expected: sent.clone(), sent }
    })
}

/// Whole frames, then a part of one that the stream ends in.
fn client() -> impl Strategy<Value = Wire> {
    let frames = vec(prop_oneof![headers(), other_frame()], 0..6);
    (frames, headers(), any::<prop::sample::Index>()).prop_map(|(frames, last, cut)| {
        let mut wire = Wire { sent: PREFACE.to_vec(), expected: PREFACE.to_vec() };
        for frame in frames {
            wire.sent.extend(frame.sent);
            wire.expected.extend(frame.expected);
        }
        let part = &last.sent[..cut.index(last.sent.len())];
        wire.sent.extend(part);
        wire.expected.extend(part);
        wire
    })
}

/// Returns its chunks one by one, with a pause before each.
struct Chunks {
    chunks: VecDeque<Vec<u8>>,
    paused: bool,
}

impl Chunks {
    fn new(bytes: &[u8], sizes: &[usize]) -> Self {
        let mut chunks = VecDeque::new();
        let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
        while !rest.is_empty() {
            let size = (*sizes.next().unwrap()).min(rest.len());
            chunks.push_back(rest[..size].to_vec());
            rest = &rest[size..];
        }
        Self { chunks, paused: false }
    }
}

impl AsyncRead for Chunks {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.paused = !this.paused;
        if this.paused {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(chunk) = this.chunks.front_mut() {
            let count = chunk.len().min(buffer.remaining());
            buffer.put_slice(&chunk.drain(..count).collect::<Vec<u8>>());
            if chunk.is_empty() {
                this.chunks.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads to the end with a buffer of `size` bytes.
fn read(bytes: &[u8], sizes: &[usize], size: usize) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let chunks = tokio::io::join(Chunks::new(bytes, sizes), tokio::io::sink());
        let mut stream = Guarded::new(chunks, None, true);
        let (mut read, mut buffer) = (Vec::new(), vec![0; size]);
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => return read,
                count => read.extend(&buffer[..count]),
            }
        }
    })
}

fn chunk_sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1..12usize, 12..20_000usize], 1..8)
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_repair(
        wire in client(),
        sizes in chunk_sizes(),
        buffer in prop_oneof![1..40usize, 40..40_000usize],
    ) {
        prop_assert_eq!(wire.sent.len(), wire.expected.len());
        prop_assert!(read(&wire.sent, &sizes, buffer) == wire.expected);
    }

    #[test]
    fn arbitrary_bytes_keep_their_length_and_never_end_early(
        preface: bool,
        bytes in vec(any::<u8>(), 0..2000),
        sizes in chunk_sizes(),
        buffer in 1..500usize,
    ) {
        let sent = if preface { [PREFACE, &bytes].concat() } else { bytes };
        let read = read(&sent, &sizes, buffer);
        prop_assert_eq!(read.len(), sent.len());
        if !preface {
            prop_assert_eq!(read, sent);
        }
    }
}

#[test]
fn a_foreign_preface_passes_untouched() {
    let tail = Headers {
        authority: ("%2Fa", "-2Fa"),
        coded: false,
        named: false,
        padding: None,
        priority: false,
        extra: 0,
    };
    let foreign = [b"PRI * HTTP/2.1\r\n\r\nSM\r\n\r\n".as_slice(), &tail.frame("%2Fa")].concat();
    for size in [1, 7, 4096] {
        assert_eq!(read(&foreign, &[size], 64), foreign);
    }
}
