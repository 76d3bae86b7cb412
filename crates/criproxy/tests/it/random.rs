//! Whatever is sent arrives as sent: random headers, pieces and trailers, there and back.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use wharf_testkit::runtime::{Headers, Reply, Then};

use crate::{
    client::{headers, send, whole},
    fixture::Fixture,
};

type Pieces = Vec<Vec<u8>>;

fn fields() -> impl Strategy<Value = Headers> {
    // Any byte that HTTP/2 lets through.
    let value = vec(prop_oneof![Just(b'\t'), 0x20..=0x7e_u8, 0x80..=0xff_u8], 0..300);
    vec(("x-[a-z0-9_.-]{0,30}", value), 0..20)
}

fn stream() -> impl Strategy<Value = (String, Headers, Pieces, Headers)> {
    let size = prop_oneof![0..50_usize, Just(16_384), 16_000..70_000_usize];
    let piece = (any::<u8>(), size).prop_map(|(first, size)| {
        (0..size).map(|at| first.wrapping_add((at % 251) as u8)).collect()
    });
    ("/[a-zA-Z0-9.]{1,40}/[a-zA-Z0-9]{1,40}", fields(), vec(piece, 0..8), fields())
}

#[test]
fn random_streams_arrive_as_sent() {
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let (_bench, runtime, client) = tokio.block_on(Fixture::with_runtime());
    runtime.answer(|_| Reply::then(Vec::new(), Then::Echo));
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() };
    TestRunner::new(config)
        .run(&stream(), |(method, leading, pieces, trailing)| {
            tokio.block_on(async {
                let (response, mut sink) = client.open(&method, &borrowed(&leading)).await;
                for piece in &pieces {
                    send(&mut sink, Bytes::from(piece.clone()), false).await.unwrap();
                }
                sink.send_trailers(headers(&borrowed(&trailing))).unwrap();
                let answer = whole(response).await.unwrap();
                let call = runtime.calls().pop().unwrap();
                prop_assert_eq!(call.method, method);
                prop_assert_eq!(headers(&borrowed(&call.headers)), headers(&borrowed(&leading)));
                prop_assert!(call.data == pieces.concat(), "data differs");
                prop_assert!(answer.data == pieces.concat(), "echo differs");
                prop_assert_eq!(headers(&borrowed(&call.trailers)), headers(&borrowed(&trailing)));
                let mut echoed = answer.trailers.unwrap();
                echoed.remove("grpc-status");
                prop_assert_eq!(echoed, headers(&borrowed(&trailing)));
                Ok(())
            })
        })
        .unwrap();
}

fn borrowed(fields: &Headers) -> Vec<(&str, &[u8])> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
}
