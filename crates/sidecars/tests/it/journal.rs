//! What was written to the API and asked of the driver, in one order.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Clones share everything.
#[derive(Clone)]
pub(crate) struct Journal {
    lines: Arc<watch::Sender<Vec<String>>>,
    faults: Arc<Mutex<Vec<Fault>>>,
    lists: Arc<AtomicUsize>,
}

struct Fault {
    method: Method,
    part: &'static str,
    code: u16,
}

impl Journal {
    pub(crate) fn new() -> Self {
        let lines = Arc::new(watch::Sender::new(Vec::new()));
        Self { lines, faults: Arc::default(), lists: Arc::default() }
    }

    pub(crate) fn note(&self, line: String) {
        self.lines.send_modify(|lines| lines.push(line));
    }

    /// The next request of this method whose path and query contain `part` never reaches the server.
    pub(crate) fn fail_once(&self, method: Method, part: &'static str, code: u16) {
        self.faults.lock().unwrap().push(Fault { method, part, code });
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }

    /// How often all objects of a kind were asked for.
    pub(crate) fn lists(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }

    /// Waits until there are so many lines, and gives them.
    pub(crate) async fn wait_for(&self, count: usize) -> Vec<String> {
        let mut lines = self.lines.subscribe();
        match tokio::time::timeout(DEADLINE, lines.wait_for(|lines| lines.len() >= count)).await {
            Ok(lines) => lines.unwrap().clone(),
            Err(_) => panic!("{count} lines were expected, not {:#?}", self.lines()),
        }
    }

    /// Waits until the journal reads so, line by line.
    pub(crate) async fn expect<const N: usize>(&self, expected: [String; N]) {
        assert_eq!(self.wait_for(N).await, expected);
    }

    /// Forgets what was noted so far.
    pub(crate) fn clear(&self) {
        self.lines.send_modify(Vec::clear);
    }

    /// A client like `inner`, in the name of `user`, whose requests are noted when they are answered. Lists are counted,
    /// and watches left out.
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
        let line = line(&request, &body);
        if request.uri().query().is_some_and(|query| query.contains("sendInitialEvents")) {
            self.lists.fetch_add(1, Ordering::Relaxed);
        }
        let answer = match self.fault(&request) {
            Some(code) => Response::builder().status(code).body(status(code)).unwrap(),
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

    fn fault(&self, request: &Request<Body>) -> Option<u16> {
        let target = request.uri().to_string();
        let mut faults = self.faults.lock().unwrap();
        let hit = |fault: &Fault| fault.method == request.method() && target.contains(fault.part);
        let at = faults.iter().position(hit)?;
        Some(faults.remove(at).code)
    }
}

fn status(code: u16) -> Body {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
        "message": format!("told to answer {code}"), "reason": "Told", "code": code,
    });
    Body::from(status.to_string().into_bytes())
}

fn line(request: &Request<Body>, body: &[u8]) -> Option<String> {
    let uri = request.uri();
    if uri.query().is_some_and(|query| !query.is_empty()) {
        return None;
    }
    let path = uri.path().trim_start_matches("/apis/storage.k8s.io/v1/");
    let path = path.trim_start_matches("/api/v1/");
    let line = format!("{} {path}", request.method());
    Some(if body.is_empty() { line } else { format!("{line} {}", steady(body)) })
}

/// The JSON without what differs from run to run.
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
