//! A caller that names the socket's path, percent-encoded, as the authority: what kubelet's dials
//! look like.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};
use wharf_testkit::runtime::message;

use crate::{
    client::VERSION,
    fixture::{Fixture, soon},
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

#[tokio::test]
async fn an_encoded_path_as_authority() {
    let (fixture, runtime, _) = Fixture::with_runtime().await;
    let mut socket = UnixStream::connect(fixture.socket()).await.unwrap();
    let literal = |head: &[u8], value: &[u8]| [head, &[value.len() as u8], value].concat();
    let block = [
        [0x83, 0x86].to_vec(),
        literal(&[0x44], VERSION.as_bytes()),
        literal(&[0x41], b"%2Frun%2Fwharf%2Fproxy.sock"),
        literal(&[0x5f], b"application/grpc"),
    ];
    let request = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, 1, &block.concat()),
        frame(DATA, END_STREAM, 1, &message(b"q")),
    ];
    socket.write_all(&request.concat()).await.unwrap();

    let answer = soon(async {
        loop {
            let mut head = [0; 9];
            socket.read_exact(&mut head).await.unwrap();
            let [high, middle, low, kind, .., stream] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
            socket.read_exact(&mut payload).await.unwrap();
            if stream == 1 && kind != HEADERS {
                return (kind, payload);
            }
        }
    });
    assert_eq!(answer.await, (DATA, message(b"").to_vec()));
    let [call] = &runtime.calls()[..] else { panic!("{:?}", runtime.calls()) };
    assert_eq!((call.method.as_str(), call.data.as_slice()), (VERSION, &message(b"q")[..]));
    assert_eq!(call.authority.as_deref(), Some("-2Frun-2Fwharf-2Fproxy.sock"));
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}
