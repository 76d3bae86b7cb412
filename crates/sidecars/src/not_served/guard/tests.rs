use std::sync::Mutex;

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::*;

const DRIVER: &str = "ebs.csi.aws.com";
const PATIENCE: Duration = Duration::from_secs(60);

/// An API that stores events by name, and returns these codes first.
#[derive(Clone)]
struct Api {
    events: Arc<watch::Sender<Vec<Value>>>,
    answers: Arc<Mutex<Vec<u16>>>,
    asked: Arc<watch::Sender<usize>>,
}

impl Api {
    fn new(answers: &[u16]) -> Self {
        let answers = Mutex::new(answers.iter().rev().copied().collect());
        Self { events: Arc::default(), answers: Arc::new(answers), asked: Arc::default() }
    }

    fn client(&self) -> Client {
        let api = self.clone();
        Client::new(tower::service_fn(move |request| api.clone().take(request)), "default")
    }

    async fn take(self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let body = request.into_body().collect_bytes().await?;
        let event: Value = serde_json::from_slice(&body).unwrap();
        let is_there = self
            .events
            .borrow()
            .iter()
            .any(|it| it["metadata"]["name"] == event["metadata"]["name"]);
        let code = self.answers.lock().unwrap().pop().unwrap_or(if is_there { 409 } else { 201 });
        if code == 201 {
            self.events.send_modify(|events| events.push(event));
        }
        self.asked.send_modify(|asked| *asked += 1);
        let answer =
            json!({ "kind": "Status", "code": code, "message": "no", "metadata": { "name": "e" } });
        let answer = Body::from(answer.to_string().into_bytes());
        Ok(Response::builder().status(code).body(answer).unwrap())
    }

    /// Waits for this number of requests.
    async fn asked(&self, times: usize) {
        let mut asked = self.asked.subscribe();
        timeout(PATIENCE, asked.wait_for(|asked| *asked >= times)).await.unwrap().unwrap();
    }
}

fn volume(name: &str, uid: &str, version: u32) -> PersistentVolume {
    serde_json::from_value(json!({
        "metadata": { "name": name, "uid": uid, "resourceVersion": version.to_string() },
        "spec": { "awsElasticBlockStore": { "volumeID": "v" } },
    }))
    .unwrap()
}

fn guard(api: &Api, controller: &'static str, caches: &Caches, unserved: &Unserved) -> Guard {
    let gaps = vec![Gap::InTreeVolumes];
    Guard::new(controller, Some(DRIVER), gaps, api.client(), caches.clone(), unserved.clone())
}

#[tokio::test(start_paused = true)]
async fn controllers_say_the_same_once_and_count_it_while_they_work() {
    let (api, caches, unserved) = (Api::new(&[]), Caches::of(DRIVER), Unserved::default());
    caches.volumes.observe(volume("a", "1", 1));
    let (stop, mut guards) = (CancellationToken::new(), JoinSet::new());
    for controller in ["attacher", "resizer"] {
        guards.spawn(guard(&api, controller, &caches, &unserved).run(stop.clone()));
    }
    api.asked(2).await;
    // A new state of the object is not reported again; another volume of its name is.
    caches.volumes.observe(volume("a", "1", 2));
    caches.volumes.observe(volume("a", "2", 3));
    api.asked(4).await;
    caches.volumes.observe(volume("b", "3", 4));
    api.asked(6).await;
    let reported: Vec<Value> =
        api.events.borrow().iter().map(|it| it["involvedObject"]["uid"].clone()).collect();
    assert_eq!(reported, ["1", "2", "3"]);
    let gap = Gap::InTreeVolumes;
    assert_eq!(unserved.counts(), [("attacher", gap, 2), ("resizer", gap, 2)]);
    stop.cancel();
    // A guard never returns by itself; its counts are removed.
    assert!(timeout(Duration::from_secs(1), guards.join_next()).await.is_err());
    assert_eq!(unserved.counts(), []);
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_is_waited_for_and_a_refusal_is_not() {
    let (api, caches, unserved) = (Api::new(&[503, 403]), Caches::of(DRIVER), Unserved::default());
    let (stop, mut guards) = (CancellationToken::new(), JoinSet::new());
    guards.spawn(guard(&api, "attacher", &caches, &unserved).run(stop.clone()));
    caches.volumes.observe(volume("refused", "1", 1));
    api.asked(2).await;
    caches.volumes.observe(volume("reported", "2", 2));
    api.asked(3).await;
    let reported: Vec<Value> =
        api.events.borrow().iter().map(|it| it["involvedObject"]["name"].clone()).collect();
    assert_eq!(reported, ["reported"]);
    assert_eq!(unserved.counts(), [("attacher", Gap::InTreeVolumes, 2)]);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_objects_are_said_at_a_pace_that_leaves_the_api_to_others() {
    let (api, caches, unserved) = (Api::new(&[]), Caches::of(DRIVER), Unserved::default());
    let mut guards = JoinSet::new();
    guards.spawn(guard(&api, "attacher", &caches, &unserved).run(CancellationToken::new()));
    let began = tokio::time::Instant::now();
    for number in 1..=100 {
        caches.volumes.observe(volume(&format!("v{number}"), &number.to_string(), number));
    }
    api.asked(25).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    api.asked(35).await;
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    assert_eq!(unserved.counts(), [("attacher", Gap::InTreeVolumes, 100)]);
}
