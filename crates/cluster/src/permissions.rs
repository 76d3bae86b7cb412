//! Collects the rights that a client's account lacks, and whether the API server has answered at
//! all.
//!
//! A refusal by RBAC has the same code as others, such as that of a quota. Its text tells them
//! apart, and names the verb and the resource that a role has to grant.

use std::{
    collections::BTreeSet,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, Full, Limited};
use kube::client::Body;
use serde::Deserialize;
use tokio::sync::Mutex as Turn;
use tower::{BoxError, Layer, Service};

use crate::{retry_after::send, transport::is_watch, with_causes};

/// A refusal has a few hundred bytes.
const MOST: usize = 64 << 10;

/// A right that the account lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingVerb {
    /// Such as `list`.
    pub verb: String,
    /// Such as `volumeattachments/status`.
    pub resource: String,
    /// Such as `storage.k8s.io`; empty for the core group.
    pub group: String,
}

impl fmt::Display for MissingVerb {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(out, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// The missing rights of an account. Clones share them; clients with this layer fill them.
#[derive(Clone, Debug, Default)]
pub struct Permissions(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    missing: BTreeSet<MissingVerb>,
    /// Whether the API server has answered a request and accepted the account.
    reached: bool,
    /// The last failure, while no request was answered yet.
    failure: Option<String>,
}

impl Permissions {
    /// Rights that were missing when they were last needed.
    pub fn missing(&self) -> Vec<MissingVerb> {
        self.lock().missing.iter().cloned().collect()
    }

    /// Why the API server has not served any request yet, as a text; `None` once it has.
    pub fn silence(&self) -> Option<String> {
        let known = self.lock();
        let failure = known.failure.as_deref().map(|failure| format!(": {failure}"));
        let silence =
            || format!("the API server has not been reached yet{}", failure.unwrap_or_default());
        (!known.reached).then(silence)
    }

    /// Records the outcome of requests until one is served.
    fn note(&self, answer: Result<StatusCode, &BoxError>) {
        let mut known = self.lock();
        if known.reached {
            return;
        }
        match answer {
            Ok(status) if status != StatusCode::UNAUTHORIZED => known.reached = true,
            Ok(status) => known.failure = Some(format!("it answers {status}")),
            Err(error) => known.failure = Some(with_causes(error.as_ref())),
        }
    }

    fn refuse(&self, verb: MissingVerb) {
        let missing = &mut self.lock().missing;
        if !missing.contains(&verb) {
            tracing::error!(verb = %verb, "account lacks a right: grant it in its role");
            missing.insert(verb);
        }
    }

    fn grant(&self, request: &Asked) {
        self.lock().missing.retain(|missing| {
            let granted = request.is(missing);
            if granted {
                tracing::info!(verb = %missing, "account has been granted the missing right");
            }
            !granted
        });
    }

    fn is_any_missing(&self) -> bool {
        !self.lock().missing.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a request for an optional right: a refusal is not recorded as missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Optional;

impl<S> Layer<S> for Permissions {
    type Service = Permitted<S>;

    fn layer(&self, inner: S) -> Permitted<S> {
        Permitted { inner: Arc::new(Turn::new(inner)), permissions: self.clone() }
    }
}

/// Reads refusals on their way to the caller.
pub struct Permitted<S> {
    /// Locked only until it has accepted a request.
    inner: Arc<Turn<S>>,
    permissions: Permissions,
}

impl<S, B> Service<Request<Body>> for Permitted<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Either<B, Full<Bytes>>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (inner, permissions) = (Arc::clone(&self.inner), self.permissions.clone());
        Box::pin(async move {
            let asked = permissions.is_any_missing().then(|| Asked::of(&request));
            let is_optional = request.extensions().get::<Optional>().is_some();
            let answer = send(&inner, request).await;
            permissions.note(answer.as_ref().map(Response::status));
            let answer = answer?;
            if answer.status() != StatusCode::FORBIDDEN {
                if let Some(asked) = asked.filter(|_| answer.status().is_success()) {
                    permissions.grant(&asked);
                }
                return Ok(answer.map(Either::Left));
            }
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MOST).collect().await?.to_bytes();
            if let Some(verb) = missing(&body).filter(|_| !is_optional) {
                permissions.refuse(verb);
            }
            Ok(Response::from_parts(head, Either::Right(Full::new(body))))
        })
    }
}

/// The missing right that a refusal names.
fn missing(body: &[u8]) -> Option<MissingVerb> {
    #[derive(Deserialize)]
    struct StatusBody {
        message: String,
    }
    let StatusBody { message } = serde_json::from_slice(body).ok()?;
    // User "u" cannot list resource "pods" in API group "" at the cluster scope
    let (_, rest) = message.split_once(" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once("\" in API group \"")?;
    let (group, _) = rest.split_once('"')?;
    let [verb, resource, group] = [verb, resource, group].map(str::to_owned);
    Some(MissingVerb { verb, resource, group })
}

/// The verb, group and resource of a request.
struct Asked {
    verb: &'static str,
    path: String,
}

impl Asked {
    fn of(request: &Request<Body>) -> Self {
        let path = request.uri().path().trim_end_matches('/').to_owned();
        let verb = match *request.method() {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ if is_watch(request) => "watch",
            _ if rest(&path).is_some_and(|(_, rest)| rest.len() > 1) => "get",
            _ => "list",
        };
        Self { verb, path }
    }

    fn is(&self, missing: &MissingVerb) -> bool {
        let Some((group, rest)) = rest(&self.path) else { return false };
        let resource = match rest[..] {
            [resource] | [resource, _] => resource.to_owned(),
            [resource, _, part] => format!("{resource}/{part}"),
            _ => return false,
        };
        (self.verb, resource.as_str(), group) == (&missing.verb, &missing.resource, &missing.group)
    }
}

/// Splits a path into the group and what follows version and namespace: resource, name and
/// subresource.
fn rest(path: &str) -> Option<(&str, Vec<&str>)> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, parts) = match &parts[..] {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let parts = match parts {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    Some((group, parts.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;
    use tower::{ServiceExt, service_fn};

    use super::*;

    const RBAC: &str = "volumeattachments.storage.k8s.io \"a\" is forbidden: User \"system:serviceaccount:kube-system:x\" cannot \
                        patch resource \"volumeattachments/status\" in API group \"storage.k8s.io\" at the cluster scope";

    /// Refuses the first requests with these texts, and accepts later ones.
    fn server(
        permissions: &Permissions,
        texts: &'static [&'static str],
    ) -> impl Service<
        Request<Body>,
        Response = Response<Either<Full<Bytes>, Full<Bytes>>>,
        Error = BoxError,
    > {
        let turn = Arc::new(AtomicUsize::new(0));
        permissions.layer(service_fn(move |_| {
            let answer = match texts.get(turn.fetch_add(1, Ordering::SeqCst)) {
                Some(text) => {
                    let status = json!({ "kind": "Status", "code": 403, "message": text });
                    Response::builder().status(403).body(Full::new(status.to_string().into()))
                }
                None => Response::builder().body(Full::default()),
            };
            std::future::ready(answer.map_err(BoxError::from))
        }))
    }

    async fn ask(
        server: &mut impl Service<
            Request<Body>,
            Response = Response<Either<Full<Bytes>, Full<Bytes>>>,
            Error = BoxError,
        >,
        method: Method,
        path: &str,
    ) -> String {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        let answer = server.ready().await.unwrap().call(request).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_missing_right_is_named_until_it_is_granted() {
        let permissions = Permissions::default();
        let mut server = server(&permissions, &[RBAC, RBAC]);
        let path = "/apis/storage.k8s.io/v1/volumeattachments/a/status";
        for _ in 0..2 {
            let body = ask(&mut server, Method::PATCH, path).await;
            assert!(body.contains("cannot patch"), "the caller must read it too: {body}");
        }
        let named: Vec<_> = permissions.missing().iter().map(ToString::to_string).collect();
        assert_eq!(named, ["patch volumeattachments/status.storage.k8s.io"]);
        for (method, path) in [
            (Method::GET, path),
            (Method::PATCH, "/apis/storage.k8s.io/v1/volumeattachments/a"),
            (Method::PATCH, "/apis/other/v1/volumeattachments/a/status"),
        ] {
            ask(&mut server, method, path).await;
            assert_eq!(permissions.missing().len(), 1, "{path}");
        }
        ask(&mut server, Method::PATCH, path).await;
        assert!(permissions.missing().is_empty());
    }

    #[tokio::test]
    async fn a_refusal_for_another_reason_is_none_of_a_right() {
        let permissions = Permissions::default();
        let texts = &[
            "persistentvolumeclaims \"a\" is forbidden: exceeded quota: storage",
            "unable to create new content in namespace a because it is being terminated",
        ];
        let mut server = server(&permissions, texts);
        for _ in texts {
            ask(&mut server, Method::POST, "/api/v1/namespaces/a/persistentvolumeclaims").await;
        }
        assert!(permissions.missing().is_empty());
    }

    #[tokio::test]
    async fn a_right_that_nobody_needs_is_not_missing() {
        let permissions = Permissions::default();
        let mut server = server(&permissions, &[RBAC]);
        let request = Request::patch("/apis/storage.k8s.io/v1/volumeattachments/a/status");
        let request = request.extension(Optional).body(Body::empty()).unwrap();
        let answer = server.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        assert!(permissions.missing().is_empty());
    }

    #[test]
    fn verbs_and_resources_are_read_from_requests() {
        for (method, uri, verb, resource, group) in [
            (Method::GET, "/api/v1/pods?limit=500", "list", "pods", ""),
            (Method::GET, "/api/v1/pods?watch=true", "watch", "pods", ""),
            (Method::GET, "/api/v1/namespaces/a/pods/b", "get", "pods", ""),
            (Method::GET, "/api/v1/namespaces/a", "get", "namespaces", ""),
            (Method::POST, "/apis/x.io/v1/namespaces/a/things", "create", "things", "x.io"),
            (Method::PUT, "/apis/x.io/v1/things/a/status", "update", "things/status", "x.io"),
            (Method::DELETE, "/apis/x.io/v1/things/a", "delete", "things", "x.io"),
        ] {
            let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
            let [verb, resource, group] = [verb, resource, group].map(str::to_owned);
            assert!(Asked::of(&request).is(&MissingVerb { verb, resource, group }), "{uri}");
        }
    }
}
