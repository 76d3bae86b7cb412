use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::client::Body;
use serde_json::Value;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{Meta, PersistentVolume};

/// An API that records events in the order of their arrival.
#[derive(Clone)]
struct Api {
    lines: Arc<watch::Sender<Vec<String>>>,
    /// Codes of the next answers; later ones are successes.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Api {
    fn new(answers: &[u16]) -> Self {
        let answers = answers.iter().rev().copied().collect();
        Self { lines: Arc::default(), answers: Arc::new(Mutex::new(answers)) }
    }

    fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request| api.clone().take(request));
        Client::new(service, "default")
    }

    async fn take(self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let body = request.into_body().collect_bytes().await?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let code = self.answers.lock().unwrap().pop().unwrap_or(200);
        let (count, message) = (&body["count"], body["message"].as_str().unwrap());
        let resource = path.rsplit_once("/events").unwrap().1;
        self.lines.send_modify(|lines| {
            lines.push(format!("{method} {resource} {count} {message} -> {code}"));
        });
        let answer = match code {
            200 => json!({ "metadata": { "name": "e" }, "involvedObject": {} }),
            code => json!({ "kind": "Status", "code": code, "message": "no", "reason": "no" }),
        };
        Ok(Response::builder()
            .status(code)
            .body(Body::from(answer.to_string().into_bytes()))
            .unwrap())
    }

    async fn expect<const N: usize>(&self, expected: [&str; N]) {
        let mut lines = self.lines.subscribe();
        let limit = std::time::Duration::from_mins(10);
        let lines = timeout(limit, lines.wait_for(|lines| lines.len() >= N)).await;
        assert_eq!(*lines.unwrap().unwrap(), expected);
    }
}

fn volume(name: &str) -> PersistentVolume {
    let metadata = Meta { name: name.to_owned(), uid: "u".to_owned(), ..Meta::default() };
    PersistentVolume { metadata, ..PersistentVolume::default() }
}

fn start(api: &Api) -> (Events, JoinSet<()>) {
    let (events, writer) = Events::new(EventRecorder::new(api.client(), "wharf test", ""));
    let mut tasks = JoinSet::new();
    tasks.spawn(writer.run(CancellationToken::new()));
    (events, tasks)
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_is_counted_and_created_again_after_its_deletion() {
    let api = Api::new(&[200, 200, 404]);
    let (events, _tasks) = start(&api);
    for _ in 0..3 {
        events.record(&volume("a"), EventType::Warning, "Failed", "no");
    }
    let expected =
        ["POST  1 no -> 200", "PATCH /e 2 no -> 200", "PATCH /e 3 no -> 404", "POST  3 no -> 200"];
    api.expect(expected).await;
}

#[tokio::test(start_paused = true)]
async fn an_api_out_of_reach_is_asked_again_and_one_that_refuses_is_not() {
    let api = Api::new(&[500, 503, 200, 403]);
    let (events, _tasks) = start(&api);
    let began = Instant::now();
    events.record(&volume("a"), EventType::Warning, "Failed", "x");
    api.expect(["POST  1 x -> 500", "POST  1 x -> 503", "POST  1 x -> 200"]).await;
    assert_eq!(began.elapsed().as_millis(), 1500);
    events.record(&volume("a"), EventType::Normal, "Done", "y");
    events.record(&volume("a"), EventType::Normal, "Done", "z");
    let lines = ["POST  1 x -> 500", "POST  1 x -> 503", "POST  1 x -> 200"];
    let [first, second, third] = lines;
    api.expect([first, second, third, "POST  1 y -> 403", "POST  1 z -> 200"]).await;
}

#[tokio::test]
async fn a_failure_names_the_object_that_the_event_is_about() {
    let recorder = EventRecorder::new(Api::new(&[403, 403, 403]).client(), "wharf test", "");
    let expected = |about: &str| {
        format!("event about {about}: forbidden for this account: no; grant it in the ClusterRole")
    };
    let about = object_reference(&volume("a"));
    let refused = recorder.record(about.clone(), EventType::Normal, "Done", "x").await;
    assert_eq!(refused.unwrap_err().to_string(), expected("PersistentVolume a"));
    let about = ObjectReference { namespace: Some("n".to_owned()), ..about };
    let refused = recorder.record(about.clone(), EventType::Normal, "Done", "x").await;
    assert_eq!(refused.unwrap_err().to_string(), expected("PersistentVolume n/a"));
    let entry = Entry { name: None, count: 2, first: Timestamp::now() };
    let again = Correlated { entry, message: "x".to_owned(), key: 0 };
    let refused = recorder.recount(&about, "e", &again).await;
    assert_eq!(refused.unwrap_err().to_string(), expected("PersistentVolume n/a"));
}

#[tokio::test(start_paused = true)]
async fn events_about_other_objects_do_not_wait() {
    let asked = Arc::new(watch::Sender::new(0));
    let count = Arc::clone(&asked);
    let client = Client::new(
        tower::service_fn(move |_: Request<Body>| {
            count.send_modify(|asked| *asked += 1);
            std::future::pending::<Result<Response<Body>, kube::Error>>()
        }),
        "default",
    );
    let (events, writer) = Events::new(EventRecorder::new(client, "wharf test", ""));
    let mut tasks = JoinSet::new();
    let stop = CancellationToken::new();
    tasks.spawn(writer.run(stop.clone()));
    for number in 0..100 {
        events.record(&volume(&number.to_string()), EventType::Warning, "Failed", "no");
    }
    let mut asked = asked.subscribe();
    let limit = std::time::Duration::from_secs(5);
    timeout(limit, asked.wait_for(|asked| *asked > 1)).await.unwrap().unwrap();
    // A hanging request does not prevent it from stopping.
    stop.cancel();
    timeout(limit, tasks.join_next()).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn an_event_that_is_there_is_not_written_again() {
    let api = Api::new(&[201, 409]);
    let recorder = EventRecorder::new(api.client(), "wharf test", "");
    let mut about = volume("a");
    about.metadata.uid = "u-1".to_owned();
    let about = object_reference(&about);
    for _ in 0..2 {
        let written = recorder.record_once(about.clone(), EventType::Warning, "NotServed", "x");
        written.await.unwrap();
    }
    assert_eq!(lasting_name(&about, "NotServed"), "a.u-1.notserved");
    let long = ObjectReference { name: Some("a.".repeat(126)), ..about };
    let name = lasting_name(&long, "NotServed");
    assert!(name.len() <= 253 && name.ends_with("a.u-1.notserved"), "{name}");
}
