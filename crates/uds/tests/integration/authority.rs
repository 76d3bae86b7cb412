//! Bytes of a kubelet-style client against the real server.

use prost::Message as _;
use tokio::{io::AsyncWriteExt, net::UnixStream};
use wharf_uds::ListenOptions;

use crate::{
    echo::{DEADLINE, Folder, Message, Server},
    raw::{DATA, END_STREAM, HEADERS, RST_STREAM, dial, next},
};

const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];

const AUTHORITY: &[u8] = b"%2Ftmp%2Fx%2Fplugin.sock";
const REPAIRED: &str = "-2Ftmp-2Fx-2Fplugin.sock";
/// The first, and `:authority`, in HPACK's Huffman code.
const AUTHORITY_CODED: &[u8] =
    b"\x54\x58\x53\x4d\x6a\x8b\x0f\x95\x45\x86\xba\x2d\x98\xd5\x2e\x83\x93\xaf";
const NAME_CODED: &[u8] = b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f";

/// The ways in which clients write the header: grpc-go by static index, C-core by name.
fn authorities() -> [Vec<u8>; 4] {
    let plain = [&[AUTHORITY.len() as u8], AUTHORITY].concat();
    let coded = [&[0x80 | AUTHORITY_CODED.len() as u8], AUTHORITY_CODED].concat();
    [
        [&[0x41], plain.as_slice()].concat(),
        [&[0x41], coded.as_slice()].concat(),
        [b"\x40\x0a:authority", plain.as_slice()].concat(),
        [&[0x10, 0x80 | NAME_CODED.len() as u8], NAME_CODED, &coded].concat(),
    ]
}

fn call(stream: u32, authority: &[u8], message: &Message) -> Vec<u8> {
    crate::raw::call(stream, "/test.Echo/Echo", authority, message)
}

async fn expect_echo(socket: &mut UnixStream, stream: u32, payload: &[u8]) {
    let head = next(socket, stream).await;
    assert_eq!(head.kind, HEADERS, "{:x?}", head.payload);
    let data = next(socket, stream).await;
    assert_eq!(data.kind, DATA);
    let echo = Message::decode(&data.payload[5..]).unwrap();
    assert_eq!((echo.payload.as_slice(), echo.authority.as_str()), (payload, REPAIRED));
    let trailers = next(socket, stream).await;
    assert_eq!((trailers.kind, trailers.flags & END_STREAM), (HEADERS, END_STREAM));
}

#[tokio::test]
async fn a_percent_encoded_authority_is_served() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    for authority in authorities() {
        let mut socket = dial(&server).await;
        socket.write_all(&call(1, &authority, &Message::of("one"))).await.unwrap();
        expect_echo(&mut socket, 1, b"one").await;
    }
    server.stopped().await;
}

/// The server's dynamic table holds the repaired value, at the same index as the client's table.
#[tokio::test]
async fn later_calls_by_dynamic_index_are_served_too() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let mut socket = dial(&server).await;
    socket.write_all(&call(1, &authorities()[1], &Message::of("one"))).await.unwrap();
    expect_echo(&mut socket, 1, b"one").await;
    // Newest first, from 62: the second :path, te, content-type, :authority.
    socket.write_all(&call(3, &[0x80 | 65], &Message::of("two"))).await.unwrap();
    expect_echo(&mut socket, 3, b"two").await;
    drop(socket);
    server.stopped().await;
}

#[tokio::test]
async fn bytes_that_arrive_one_by_one_are_served() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let mut socket = dial(&server).await;
    for byte in call(1, &authorities()[1], &Message::of("one")) {
        socket.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    expect_echo(&mut socket, 1, b"one").await;
    drop(socket);
    server.stopped().await;
}

#[tokio::test]
async fn without_repair_the_stream_is_reset() {
    let folder = Folder::new();
    let options = ListenOptions { repair_authority: false, ..ListenOptions::default() };
    let server = Server::with(&folder.socket(), &options, DEADLINE);
    for authority in authorities() {
        let mut socket = dial(&server).await;
        socket.write_all(&call(1, &authority, &Message::of("one"))).await.unwrap();
        let reset = next(&mut socket, 1).await;
        assert_eq!((reset.kind, reset.payload.as_slice()), (RST_STREAM, &PROTOCOL_ERROR[..]));
    }
    server.stopped().await;
}
