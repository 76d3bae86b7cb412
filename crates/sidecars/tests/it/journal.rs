//! The writes to the API and the calls of the driver, in one order.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderValue, Method, Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Clones share the lines.
#[derive(Clone)]
pub(crate) struct Journal {
    lines: Arc<watch::Sender<Vec<String>>>,
    /// Events, kept apart because their time is not determined.
    events: Arc<watch::Sender<Vec<String>>>,
    faults: Arc<Mutex<Vec<Fault>>>,
    held: Arc<Notify>,
    lists: Arc<Mutex<Vec<String>>>,
    /// Whether created objects are shown by name only, and events are kept apart.
    brief: bool,
}

struct Fault {
    method: Method,
    part: &'static str,
    kind: FaultKind,
}

#[derive(Clone)]
enum FaultKind {
    Code(u16),
    /// Blocks requests until this is cancelled.
    Hold(CancellationToken),
}

impl Journal {
    pub(crate) fn new() -> Self {
        let lines = || Arc::new(watch::Sender::new(Vec::new()));
        Self {
            lines: lines(),
            events: lines(),
            faults: Arc::default(),
            held: Arc::default(),
            lists: Arc::default(),
            brief: false,
        }
    }

    /// A journal that shows created objects by name only, and keeps events apart.
    pub(crate) fn brief() -> Self {
        Self { brief: true, ..Self::new() }
    }

    pub(crate) fn note(&self, line: String) {
        self.lines.send_modify(|lines| lines.push(line));
    }

    /// Fails the next request of this method whose path and query contain `part`, before it reaches
    /// the server.
    pub(crate) fn fail_once(&self, method: Method, part: &'static str, code: u16) {
        let kind = FaultKind::Code(code);
        self.faults.lock().unwrap().push(Fault { method, part, kind });
    }

    /// Holds the next request of this method whose path and query contain `part` until `until`.
    pub(crate) fn hold(&self, method: Method, part: &'static str, until: CancellationToken) {
        let kind = FaultKind::Hold(until);
        self.faults.lock().unwrap().push(Fault { method, part, kind });
    }

    /// Waits until a request is held.
    pub(crate) async fn held(&self) {
        tokio::time::timeout(DEADLINE, self.held.notified()).await.unwrap();
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }

    /// The number of list requests for a kind.
    pub(crate) fn lists(&self) -> usize {
        self.lists.lock().unwrap().len()
    }

    /// Whether a list was requested at an address that contains `part`.
    pub(crate) fn has_listed(&self, part: &str) -> bool {
        self.lists.lock().unwrap().iter().any(|list| list.contains(part))
    }

    /// Waits for this number of lines, and returns them.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<String> {
        let mut lines = self.lines.subscribe();
        match tokio::time::timeout(DEADLINE, lines.wait_for(|lines| lines.len() >= count)).await {
            Ok(lines) => lines.unwrap().clone(),
            Err(_) => panic!("{count} lines were expected, not {:#?}", self.lines()),
        }
    }

    /// Waits until the journal has exactly these lines.
    pub(crate) async fn expect<const N: usize>(&self, expected: [String; N]) {
        assert_eq!(self.wait_for(N).await, expected);
    }

    /// Waits for this number of lines about an object, and returns them with the object's name
    /// replaced by `alias`.
    pub(crate) async fn about(&self, name: &str, alias: &str, count: usize) -> Vec<String> {
        let mut all = self.lines.subscribe();
        let told =
            |lines: &Vec<String>| lines.iter().filter(|it| it.contains(name)).count() >= count;
        let waited = tokio::time::timeout(DEADLINE, all.wait_for(told)).await.is_ok();
        let lines = self.lines();
        let lines = lines.iter().filter(|it| it.contains(name)).map(|it| it.replace(name, alias));
        let lines: Vec<String> = lines.collect();
        assert!(waited, "{count} lines about {name} were expected, not {lines:#?}");
        lines
    }

    /// Waits for this line, among others.
    pub(crate) async fn line(&self, line: &str) {
        let mut lines = self.lines.subscribe();
        let noted = |lines: &Vec<String>| lines.iter().any(|it| it == line);
        if tokio::time::timeout(DEADLINE, lines.wait_for(noted)).await.is_err() {
            panic!("{line:?} was expected, not {:#?}", self.lines());
        }
    }

    /// Waits for an event that begins like this: type, reason and message.
    pub(crate) async fn event(&self, beginning: &str) {
        let mut events = self.events.subscribe();
        let told = |events: &Vec<String>| events.iter().any(|it| it.starts_with(beginning));
        if tokio::time::timeout(DEADLINE, events.wait_for(told)).await.is_err() {
            panic!("{beginning:?} was expected, not {:#?}", self.events.borrow());
        }
    }

    /// Clears the journal.
    pub(crate) fn clear(&self) {
        self.lines.send_modify(Vec::clear);
        self.events.send_modify(Vec::clear);
    }

    /// A client like `inner`, as `user`, whose requests are recorded when they are answered. Lists
    /// are counted, and watches are left out.
    pub(crate) fn client(&self, inner: &Client, user: Option<&'static str>) -> Client {
        let (journal, inner) = (self.clone(), inner.clone());
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let (journal, inner) = (journal.clone(), inner.clone());
            if let Some(user) = user {
                request.headers_mut().insert("impersonate-user", HeaderValue::from_static(user));
            }
            async move { journal.pass(&inner, request).await }
        });
        Client::new(service, "default")
    }

    async fn pass(
        &self,
        inner: &Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let body = request.body().try_clone().unwrap().collect_bytes().await?;
        if self.brief && request.uri().path().contains("/events") {
            // The repetition of an event only increases its count.
            if request.method() == Method::POST {
                self.events.send_modify(|events| events.push(event(&body)));
            }
            return inner.send(request).await;
        }
        let line = line(&request, &body, self.brief);
        if request.uri().query().is_some_and(|query| query.contains("sendInitialEvents")) {
            self.lists.lock().unwrap().push(request.uri().to_string());
        }
        let answer = match self.fault(&request) {
            Some(FaultKind::Hold(until)) => {
                self.held.notify_one();
                until.cancelled().await;
                inner.send(request).await?
            }
            Some(FaultKind::Code(code)) => {
                Response::builder().status(code).body(status(code)).unwrap()
            }
            None => inner.send(request).await?,
        };
        if let Some(line) = line {
            self.note(match answer.status() {
                code if code.is_success() => line,
                code => format!("{line} -> {}", code.as_u16()),
            });
        }
        Ok(answer)
    }

    fn fault(&self, request: &Request<Body>) -> Option<FaultKind> {
        let target = request.uri().to_string();
        let mut faults = self.faults.lock().unwrap();
        let hit = |fault: &Fault| fault.method == request.method() && target.contains(fault.part);
        let at = faults.iter().position(hit)?;
        Some(faults.remove(at).kind)
    }
}

fn status(code: u16) -> Body {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
        "message": format!("told to answer {code}"), "reason": "Told", "code": code,
    });
    Body::from(status.to_string().into_bytes())
}

fn line(request: &Request<Body>, body: &[u8], brief: bool) -> Option<String> {
    let uri = request.uri();
    if uri.query().is_some_and(|query| !query.is_empty()) {
        return None;
    }
    let path = uri.path().trim_start_matches("/apis/storage.k8s.io/v1/");
    let path = path.trim_start_matches("/api/v1/");
    let line = format!("{} {path}", request.method());
    Some(match *request.method() {
        Method::POST if brief => format!("{line} {}", name(body)),
        Method::PUT | Method::DELETE if brief => line,
        _ if body.is_empty() => line,
        _ => format!("{line} {}", steady(body)),
    })
}

fn event(body: &[u8]) -> String {
    let event: Value = serde_json::from_slice(body).unwrap();
    let text = |field: &str| event[field].as_str().unwrap().to_owned();
    format!("{} {} {}", text("type"), text("reason"), text("message"))
}

fn name(body: &[u8]) -> String {
    let object: Value = serde_json::from_slice(body).unwrap();
    let metadata = &object["metadata"];
    metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap().to_owned()
}

/// The JSON without parts that differ between runs.
fn steady(body: &[u8]) -> Value {
    let mut body: Value = serde_json::from_slice(body).unwrap();
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("uid");
        if let Some(version) = metadata.get_mut("resourceVersion") {
            *version = json!("*");
        }
        if metadata.is_empty() {
            body.as_object_mut().unwrap().remove("metadata");
        }
    }
    for error in ["attachError", "detachError"] {
        if let Some(time) = body.pointer_mut(&format!("/status/{error}/time")) {
            *time = json!("*");
        }
    }
    body
}
