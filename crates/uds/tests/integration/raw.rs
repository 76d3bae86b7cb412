//! A client that writes its frames itself.

use std::path::Path;

use prost::Message as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use crate::echo::{Message, Server, soon};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const PING: u8 = 6;
const SETTINGS: u8 = 4;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// A frame of the server.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Connects and sends the preface.
pub(crate) async fn dial(server: &Server) -> UnixStream {
    connect(&server.path).await
}

pub(crate) async fn connect(path: &Path) -> UnixStream {
    let mut socket = UnixStream::connect(path).await.unwrap();
    let settings = frame(SETTINGS, 0, 0, &[]);
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings].concat();
    socket.write_all(&preface).await.unwrap();
    socket
}

/// Sends the first frame of a server, once the client has sent its preface.
pub(crate) async fn greet(client: &mut UnixStream) {
    let mut preface = [0; 24];
    client.read_exact(&mut preface).await.unwrap();
    client.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
}

/// A piece of an answer.
pub(crate) fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    frame(DATA, 0, stream, bytes)
}

/// An answer without a message.
pub(crate) fn answer(stream: u32) -> Vec<u8> {
    let block = [&[0x88][..], &literal("grpc-status", "0")].concat();
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

/// The frames of a unary call. `fields` are further header fields, in HPACK.
pub(crate) fn call(stream: u32, method: &str, fields: &[u8], message: &Message) -> Vec<u8> {
    let block = [
        &[0x83, 0x86, 0x44, method.len() as u8],
        method.as_bytes(),
        fields,
        &literal("content-type", "application/grpc"),
        &literal("te", "trailers"),
    ]
    .concat();
    let message = message.encode_to_vec();
    let data = [&[0, 0, 0, 0, message.len() as u8], message.as_slice()].concat();
    let headers = frame(HEADERS, END_HEADERS, stream, &block);
    [headers, frame(DATA, END_STREAM, stream, &data)].concat()
}

/// A call that only begins, and ends with a reset. `fields` are further header fields, in HPACK.
pub(crate) fn cancelled(stream: u32, method: &str, fields: &[u8]) -> Vec<u8> {
    let block = [&[0x83, 0x86, 0x04, method.len() as u8], method.as_bytes(), fields].concat();
    let headers = frame(HEADERS, END_HEADERS, stream, &block);
    [headers, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
}

/// A header field that both sides index.
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    let value = [&[value.len() as u8], value.as_bytes()].concat();
    [&[0x40, name.len() as u8], name.as_bytes(), &value].concat()
}

/// The next frame of a stream.
pub(crate) async fn next(socket: &mut UnixStream, stream: u32) -> Frame {
    soon(async {
        loop {
            let frame = read(socket).await.expect("a frame");
            if frame.stream == stream {
                return frame;
            }
        }
    })
    .await
}

/// The next frame; `None` at the end.
pub(crate) async fn read(socket: &mut UnixStream) -> Option<Frame> {
    let mut header = [0; 9];
    socket.read_exact(&mut header).await.ok()?;
    let [high, middle, low, kind, flags, stream @ ..] = header;
    let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
    socket.read_exact(&mut payload).await.unwrap();
    Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
}

/// The answer to a PING.
pub(crate) fn acknowledged(ping: &Frame) -> Vec<u8> {
    frame(PING, ACK, 0, &ping.payload)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
