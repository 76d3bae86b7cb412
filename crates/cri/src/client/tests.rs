use wharf_proto::cri::{ListContainersResponse, ListPodSandboxResponse};
use wharf_testkit::runtime::{Reply, Runtime, Then, message};

use super::*;

fn failing(code: Code) -> Reply {
    let status = ("grpc-status".to_owned(), i32::from(code).to_string().into_bytes());
    Reply { headers: vec![status], ..Reply::then(Vec::new(), Then::Headers) }
}

fn answering(answer: &impl Message) -> Reply {
    Reply::of(vec![message(&answer.encode_to_vec())])
}

fn runtime(folder: &tempfile::TempDir) -> (Runtime, Client) {
    let runtime = Runtime::start(&folder.path().join("runtime.sock"));
    let client = Client::new(runtime.path(), ClientOptions::default());
    (runtime, client)
}

#[tokio::test]
async fn the_old_version_is_asked_where_the_new_one_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, client) = runtime(&folder);
    let pod = PodSandbox { id: "pod-1".to_owned(), ..Default::default() };
    let list = ListPodSandboxResponse { items: vec![pod.clone()] };
    runtime.tell(move |method| match method {
        "/runtime.v1alpha2.RuntimeService/ListPodSandbox" => answering(&list),
        _ => failing(Code::Unimplemented),
    });
    assert_eq!(client.pods().await.unwrap().collect::<Vec<_>>(), [pod]);
    let asked: Vec<_> = runtime.inquiries().into_iter().map(|call| call.method).collect();
    assert_eq!(
        asked,
        [
            "/runtime.v1.RuntimeService/ListPodSandbox",
            "/runtime.v1alpha2.RuntimeService/ListPodSandbox"
        ]
    );
    assert_eq!(client.containers().await.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn what_the_runtime_does_not_have_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, client) = runtime(&folder);
    runtime.tell(|_| failing(Code::NotFound));
    assert_eq!(client.pod_details("pod-1").await.unwrap(), None);
    assert_eq!(client.container_details("id-1").await.unwrap(), None);
    runtime.tell(|_| failing(Code::Internal));
    assert_eq!(client.pod_details("pod-1").await.unwrap_err().code(), Code::Internal);
}

#[tokio::test]
async fn a_beginning_of_an_id_is_enough_if_it_is_unique() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, client) = runtime(&folder);
    let own = |id: &str| Container { id: id.to_owned(), ..Default::default() };
    let list = ListContainersResponse { containers: vec![own("abc"), own("abd"), own("x")] };
    runtime.tell(move |_| answering(&list));
    assert_eq!(client.container("abc").await.unwrap(), Some(own("abc")));
    assert_eq!(client.container("x").await.unwrap(), Some(own("x")));
    assert_eq!(client.container("ab").await.unwrap(), None);
    assert_eq!(client.container("y").await.unwrap(), None);
}

#[tokio::test]
async fn lists_of_a_busy_node_pass() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, client) = runtime(&folder);
    let long = "x".repeat(17 << 20);
    let own = Container { annotations: [("a".to_owned(), long)].into(), ..Default::default() };
    let list = ListContainersResponse { containers: vec![own] };
    runtime.tell(move |_| answering(&list));
    let own = client.containers().await.unwrap().next().unwrap();
    assert_eq!(own.annotations["a"].len(), 17 << 20);
}

#[tokio::test]
async fn a_runtime_that_does_not_answer_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let (runtime, _) = runtime(&folder);
    runtime.tell(|_| Reply::then(Vec::new(), Then::Never));
    let options = ClientOptions { timeout: Duration::from_millis(50) };
    let status = Client::new(runtime.path(), options).pods().await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("ListPodSandbox"), "{status}");
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_named() {
    let client = Client::new("/nowhere/runtime.sock", ClientOptions::default());
    let status = client.pods().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("/nowhere/runtime.sock"), "{status}");
    assert!(format!("{client:?}").contains("/nowhere"));
}
