//! Answers that are no answers, and big ones.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tonic::Code;
use wharf_proto::hooks::{ContainerResourceHookResponse, PodSandboxHookResponse};

use super::{
    fixture::{Fixture, map},
    server::{End, HookServer, raw},
};
use crate::config::FailurePolicy;

fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

/// Whatever comes is a failure under the server's policy, and the next call is one like any other.
#[tokio::test]
async fn garbage_is_a_failure() {
    let pod = PodSandboxHookResponse { annotations: map(&[("a", "b")]), ..Default::default() };
    for (name, bytes, end) in [
        ("no protobuf", frame(&[0xff; 64]), End::Trailers),
        ("another type", frame(&pod.encode_to_vec()), End::Trailers),
        ("no frame", Bytes::from_static(b"\xff\xff\xff\xff\xff\xff"), End::Trailers),
        ("no message", Bytes::new(), End::Trailers),
        ("half a frame", frame(&[0; 64]).slice(..20), End::Trailers),
        ("a reset", frame(&[0; 64]).slice(..20), End::Reset),
        ("a crash", frame(&[0; 64]).slice(..20), End::Gone),
    ] {
        let fixture = Fixture::new();
        let _server = raw(&fixture.socket("a"), bytes, end);
        fixture.serve([fixture.server("a", FailurePolicy::Ignore)]);
        for _ in 0..2 {
            let asked = fixture.ask().await.unwrap();
            assert!(!asked.answered && asked.edits.is_empty(), "{name}");
        }
        fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
        let status = fixture.ask().await.unwrap_err();
        assert!(status.message().starts_with("hook server err: a at "), "{name}: {status}");
        assert!(!status.message().contains("did not finish"), "{name}: {status}");
    }
}

#[tokio::test]
async fn a_megabyte_of_env_is_taken_and_five_are_not() {
    let fixture = Fixture::new();
    let _server = HookServer::start(&fixture.socket("a"), |asked| async move {
        let size: usize = asked.message.pod_cgroup_parent.parse().unwrap();
        let container_envs = map(&[("BIG", &"x".repeat(size))]);
        Ok(ContainerResourceHookResponse { container_envs, ..Default::default() })
    });
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let asked = fixture.ask_with_parent("1000000").await.unwrap();
    assert_eq!(asked.request.container_envs["BIG"].len(), 1_000_000);
    let status = fixture.ask_with_parent("5000000").await.unwrap_err();
    assert!(status.message().starts_with("hook server err: "), "{status}");
    assert!(fixture.ask_with_parent("1").await.unwrap().answered);
}

#[tokio::test]
async fn a_long_error_is_cut() {
    let fixture = Fixture::new();
    let text: &'static str = Box::leak("x".repeat(100_000).into_boxed_str());
    let _server = HookServer::failing(&fixture.socket("a"), Code::Aborted, text);
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let status = fixture.ask().await.unwrap_err();
    assert_eq!(status.code(), Code::Unknown);
    assert!(status.message().len() < 2048, "{} bytes", status.message().len());
}
