//! What arrives is what was sent.

use bytes::Bytes;
use wharf_testkit::runtime::{End, Reply, Then, message};

use crate::{
    client::{USUAL, VERSION, headers, send, whole},
    fixture::Fixture,
};

const BINARY: &[u8] = b"AAEC/w+-_=\xf0\x9f\x9a\xa2";

#[tokio::test]
async fn headers_data_and_trailers_both_ways() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let details = [b"CA0SBE5vbmU".as_slice(), &b"A".repeat(70_000)].concat();
    let trailing = vec![
        ("grpc-status".to_owned(), b"5".to_vec()),
        ("grpc-message".to_owned(), b"no such %F0%9F%9A%A2".to_vec()),
        ("grpc-status-details-bin".to_owned(), details.clone()),
    ];
    runtime.answer(move |_| Reply {
        headers: vec![("x-runtime-bin".to_owned(), BINARY.to_vec())],
        ..Reply::then(vec![message(b"\x0a\x01v"), message(b"")], Then::Trailers(trailing.clone()))
    });

    let sent = [USUAL, &[("traceparent", b"00-aa-bb-01"), ("x-a-bin", BINARY), ("x-a-bin", b"")]];
    let (response, mut sink) = client.open(VERSION, &sent.concat()).await;
    send(&mut sink, message(b"\x0a\x05v1.37"), false).await.unwrap();
    sink.send_trailers(headers(&[("x-last", b"word")])).unwrap();
    let answer = whole(response).await.unwrap();

    let [call] = &runtime.calls()[..] else { panic!("{:?}", runtime.calls()) };
    assert_eq!((call.method.as_str(), call.authority.as_deref()), (VERSION, Some("localhost")));
    let sent: Vec<_> =
        sent.concat().iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
    assert_eq!(call.headers, sent);
    assert_eq!(call.data, message(b"\x0a\x05v1.37"));
    assert_eq!(call.trailers, [("x-last".to_owned(), b"word".to_vec())]);
    assert_eq!(call.end, End::Ended);

    assert_eq!(answer.http_status, 200);
    assert_eq!(
        answer.headers,
        headers(&[("x-runtime-bin", BINARY), ("content-type", b"application/grpc")])
    );
    assert_eq!(answer.data, [message(b"\x0a\x01v"), message(b"")].concat());
    let trailers = answer.trailers.unwrap();
    assert_eq!(trailers["grpc-status-details-bin"].as_bytes(), details);
    assert_eq!(trailers["grpc-message"], "no such %F0%9F%9A%A2");
    assert_eq!((&trailers["grpc-status"], trailers.len()), (&"5".parse().unwrap(), 3));
}

#[tokio::test]
async fn any_service_and_any_method() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let methods = [
        "/runtime.v1alpha2.RuntimeService/RunPodSandbox",
        "/runtime.v1.RuntimeService/CreateContainer",
        "/runtime.v1.ImageService/PullImage",
        "/runtime.v9.RuntimeService/NotThoughtOfYet",
        "/no.such.Service/Method",
        "/",
    ];
    for method in methods {
        let answer = client.call(method, message(method.as_bytes())).await.unwrap();
        assert_eq!((answer.status(), answer.data.as_slice()), ("0", &[0; 5][..]), "{method}");
    }
    let calls = runtime.calls();
    let seen: Vec<_> = calls.iter().map(|call| (call.method.as_str(), call.data.clone())).collect();
    let sent = methods.map(|method| (method, message(method.as_bytes()).to_vec()));
    assert_eq!(seen, sent);
}

#[tokio::test]
async fn an_answer_of_headers_only_stays_one() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|_| Reply {
        headers: vec![
            ("grpc-status".to_owned(), b"12".to_vec()),
            ("grpc-message".to_owned(), b"unknown method".to_vec()),
        ],
        ..Reply::then(Vec::new(), Then::Headers)
    });
    let (response, mut sink) = client.open("/runtime.v1.RuntimeService/Newer", USUAL).await;
    send(&mut sink, message(b""), true).await.unwrap();
    let response = crate::fixture::soon(response).await.unwrap();
    assert!(response.body().is_end_stream());
    assert_eq!(response.headers()["grpc-status"], "12");
    assert_eq!(response.headers()["grpc-message"], "unknown method");
    assert_eq!(response.headers().len(), 3, "{:?}", response.headers());
}

#[tokio::test]
async fn a_request_without_data() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let request = http::Request::post(format!("http://localhost{VERSION}")).body(()).unwrap();
    let (response, _) = client.sender.clone().send_request(request, true).unwrap();
    assert_eq!(whole(response).await.unwrap().status(), "0");
    let [call] = &runtime.calls()[..] else { panic!("{:?}", runtime.calls()) };
    assert_eq!((call.data.len(), call.end), (0, End::Ended));
}

#[tokio::test]
async fn requests_of_other_kinds_harm_no_call() {
    let (_bench, _runtime, client) = Fixture::with_runtime().await;
    let requests = [
        http::Request::get("http://localhost/healthz?full=1"),
        http::Request::options("http://localhost"),
        http::Request::connect("localhost:1"),
        http::Request::trace("https://[::1]:443/%00"),
    ];
    for request in requests {
        let request = request.body(()).unwrap();
        let (response, _) = client.sender.clone().send_request(request, true).unwrap();
        // The runtime's answer, or a reset.
        let _ = whole(response).await;
    }
    assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0");
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_has_ended() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|_| Reply { early: true, ..Reply::default() });
    let (response, mut sink) = client.open(VERSION, USUAL).await;
    send(&mut sink, message(b"first of many"), false).await.unwrap();
    assert_eq!(whole(response).await.unwrap().status(), "0");
    // The caller is told that nobody reads the rest.
    let reason =
        crate::fixture::soon(std::future::poll_fn(|cx| sink.poll_reset(cx))).await.unwrap();
    assert_eq!(reason, h2::Reason::NO_ERROR);
}

#[tokio::test]
async fn messages_of_16_mib_both_ways() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let big: Vec<u8> =
        (0..16_u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let big = message(&big);
    let answer = big.clone();
    runtime.answer(move |_| Reply::of(vec![answer.clone()]));
    let answer = client.call(VERSION, big.clone()).await.unwrap();
    assert_eq!(answer.status(), "0");
    assert!(answer.data == big, "the answer differs");
    assert!(runtime.calls()[0].data == big, "the request differs");
}

#[tokio::test]
async fn header_lists_of_megabytes_from_the_runtime() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let large = vec![b'a'; 1 << 20];
    let trailing: Vec<_> = (0..3).map(|i| (format!("x-large-{i}"), large.clone())).collect();
    let sent = trailing.clone();
    runtime.answer(move |_| Reply::then(Vec::new(), Then::Trailers(trailing.clone())));
    let trailers = client.call(VERSION, Bytes::new()).await.unwrap().trailers.unwrap();
    assert_eq!(trailers.len(), 4);
    assert!(sent.iter().all(|(name, value)| trailers[name].as_bytes() == value));
}

/// Eight times what the header lists of kubelets with tracing take.
#[tokio::test]
async fn header_lists_of_the_largest_requests() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let large = vec![b'a'; 20_000];
    let sent: Vec<_> = (0..3).map(|i| (format!("x-large-{i}"), large.clone())).collect();
    let fields: Vec<(&str, &[u8])> =
        sent.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
    let (response, mut sink) = client.open(VERSION, &fields).await;
    send(&mut sink, Bytes::new(), true).await.unwrap();
    assert_eq!(whole(response).await.unwrap().status(), "0");
    assert!(runtime.calls()[0].headers == sent, "request headers differ");

    let more = [fields.as_slice(), &[("x-more", &large)]].concat();
    let (response, _sink) = client.open(VERSION, &more).await;
    assert_eq!(whole(response).await.unwrap().http_status, 431);
    assert_eq!(runtime.calls().len(), 1);
    assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0");
}
