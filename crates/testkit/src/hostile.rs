//! A client that attacks an HTTP/2 server with handwritten frames.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    task::yield_now,
    time::{Instant, timeout_at},
};

/// The error code that a server sends to clients with excessive requests.
pub const ENHANCE_YOUR_CALM: u32 = 0xb;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
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
        for part in [PREFACE, settings.as_slice(), frames, &ping] {
            // If the server has closed the connection, the reading half reports that.
            if sink.write_all(part).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(writing, acknowledged(&mut source)).1
}

/// Reads until the server has acknowledged a PING, and so has read everything before it, or has
/// closed the connection.
async fn acknowledged(source: &mut (impl AsyncRead + Unpin)) -> Outcome {
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
}

/// Connects to `socket` and sends `frames`. The calls run until the connection is dropped.
///
/// # Panics
///
/// If nothing listens, or the server closes the connection.
pub async fn begin(socket: &Path, frames: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(socket).await.expect("a server to attack");
    let settings = frame(SETTINGS, 0, 0, &[]);
    stream.write_all(&[PREFACE, settings.as_slice(), frames].concat()).await.expect("a server");
    stream
}

/// Like [`begin`], and waits until the server has read the frames.
///
/// # Panics
///
/// If nothing listens, or the server closes the connection.
pub async fn hold(socket: &Path, frames: &[u8]) -> UnixStream {
    let ping = frame(PING, 0, 0, &[7; 8]);
    let mut stream = begin(socket, &[frames, &ping].concat()).await;
    assert_eq!(acknowledged(&mut stream).await, Outcome::Served);
    stream
}

/// The variable with the socket, set in the process of [`attacker`].
const ATTACKED: &str = "WHARF_TEST_ATTACKED";
/// The variable with the name of the attack.
const ATTACK: &str = "WHARF_TEST_ATTACK";

/// A command that runs the test `name` of this program in another process, to run `attack` on
/// `socket`: limits of a server for each process must not affect the observing client. The test
/// calls [`attacked`] for its arguments.
///
/// # Panics
///
/// If the program's path is unknown.
#[must_use]
pub fn attacker(name: &str, socket: &Path, attack: &str) -> Command {
    let mut command = Command::new("env");
    command.arg(format!("{ATTACKED}={}", socket.display())).arg(format!("{ATTACK}={attack}"));
    command.arg(std::env::current_exe().expect("a program"));
    command.args(["--exact", "--nocapture", name]);
    command
}

/// The socket and the attack, in a process of [`attacker`]; `None` in others.
#[must_use]
pub fn attacked() -> Option<(PathBuf, String)> {
    Some((std::env::var_os(ATTACKED)?.into(), std::env::var(ATTACK).ok()?))
}

/// How long a server may take to read the calls of a closed connection.
const READ: Duration = Duration::from_millis(500);

/// For `time`, repeatedly connects to `socket`, sends `frames` and closes the connection once the
/// server has read them. Returns how often the server has read them.
pub async fn leave(socket: &Path, frames: &[u8], time: Duration) -> usize {
    let (settings, ping) = (frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, &[7; 8]));
    let bytes = [PREFACE, settings.as_slice(), frames, &ping].concat();
    let ends = Instant::now() + time;
    let mut left = 0;
    while Instant::now() < ends {
        let read = async {
            let mut stream = UnixStream::connect(socket).await?;
            stream.write_all(&bytes).await?;
            io::Result::Ok(acknowledged(&mut stream).await)
        };
        match timeout_at(ends.min(Instant::now() + READ), read).await {
            Ok(Ok(Outcome::Served)) => left += 1,
            // The server does not read, has closed the connection, or its backlog is full.
            _ => yield_now().await,
        }
    }
    left
}

/// Calls of `method` with this message, which wait for their answers.
#[must_use]
pub fn calls(method: &str, count: u32, message: &[u8]) -> Vec<u8> {
    let block =
        [request(method), literal("content-type", "application/grpc"), literal("te", "trailers")]
            .concat();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    let data = [&[0], &length[..], message].concat();
    let call = |number: u32| {
        let stream = 2 * number + 1;
        let headers = frame(HEADERS, END_HEADERS, stream, &block);
        [headers, frame(DATA, END_STREAM, stream, &data)].concat()
    };
    (0..count).flat_map(call).collect()
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
