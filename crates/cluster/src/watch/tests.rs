use http::Response;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::Node;

/// Watches until the store has an object.
async fn fill(watch: Watch<Node>, store: &Store<Node>, last: &str) {
    let (told, mut seen) = tokio::sync::watch::channel(());
    let _changes = watch.store.subscribe(move |_| told.send_replace(()));
    let filled = async {
        while store.get(last).is_none() {
            seen.changed().await.unwrap();
        }
        store.synced().await;
    };
    tokio::select! {
        () = watch.run(CancellationToken::new()) => {}
        filled = tokio::time::timeout(Duration::from_secs(5), filled) => filled.unwrap(),
    }
}

fn node(name: &str, version: &str) -> Value {
    json!({ "metadata": { "name": name, "resourceVersion": version } })
}

fn odd(version: &str) -> Value {
    let mut odd = node("odd", version);
    odd["metadata"]["labels"] = json!({ "a": 1 });
    odd
}

/// A server with a good and a malformed object, which streams its lists or does not.
fn server(streams: bool) -> Client {
    let event = |kind: &str, object| json!({ "type": kind, "object": object }).to_string();
    let end = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "resourceVersion": "2", "annotations": { INITIAL_END: "true" } },
    });
    let list =
        [event("ADDED", odd("1")), event("ADDED", node("good", "1")), event("BOOKMARK", end)];
    let changes = [event("MODIFIED", odd("3")), event("ADDED", node("late", "4"))];
    let items = [odd("1"), node("good", "1")];
    let page = json!({ "metadata": { "resourceVersion": "2" }, "items": items });
    let (list, changes, page) = (list.join("\n"), changes.join("\n"), page.to_string());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let (code, body) = match query {
            query if query.contains("limit=") => (200, page.clone()),
            query if !query.contains("sendInitialEvents") => (200, changes.clone()),
            _ if streams => (200, list.clone()),
            _ => (422, String::new()),
        };
        let answer = Response::builder().status(code).body(Body::from(body.into_bytes()));
        async move { Ok::<_, std::convert::Infallible>(answer.unwrap()) }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_left_out_alone() {
    for streams in [true, false] {
        let store = Store::<Node>::new(|_| true);
        fill(Watch::new(server(streams), Arc::clone(&store)), &store, "late").await;
        let there = ["good", "odd"].map(|name| store.get(name).is_some());
        assert_eq!(there, [true, false], "{streams}");
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_any_more_is_not_gone() {
    for streams in [true, false] {
        let store = Store::<Node>::new(|_| true);
        for name in ["odd", "gone"] {
            store.show(serde_json::from_value(node(name, "1")).unwrap());
        }
        fill(Watch::new(server(streams), Arc::clone(&store)), &store, "late").await;
        let there = ["good", "odd", "gone"].map(|name| store.get(name).is_some());
        assert_eq!(there, [true, true, false], "{streams}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_server_need_not_have_has_no_objects_without_it() {
    for streams in [true, false] {
        let missing = tower::service_fn(move |request: http::Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default();
            let code = if query.contains("sendInitialEvents") && !streams { 422 } else { 404 };
            let answer = json!({ "kind": "Status", "code": code }).to_string().into_bytes();
            let answer = Response::builder().status(code).body(Body::from(answer)).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        });
        let store = Store::<Node>::new(|_| true);
        store.show(serde_json::from_value(node("left", "1")).unwrap());
        let watch = Watch::new(Client::new(missing, "default"), Arc::clone(&store)).optional();
        tokio::select! {
            () = watch.run(CancellationToken::new()) => {}
            () = store.synced() => {}
        }
        assert!(store.get("left").is_none());
        assert_eq!(store.failures(), 0);
    }
}

/// Without an election no new term requests a list.
#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_within_two_seconds_of_the_return_of_the_api() {
    for minutes in 1..10 {
        let (back, inner) = (Instant::now() + Duration::from_mins(minutes), server(true));
        let away = tower::service_fn(move |request: http::Request<Body>| {
            let inner = inner.clone();
            async move {
                if Instant::now() < back {
                    return Err(tower::BoxError::from("connection refused"));
                }
                Ok(inner.send(request).await?)
            }
        });
        let store = Store::<Node>::new(|_| true);
        let watch = Watch::new(Client::new(away, "default"), Arc::clone(&store));
        tokio::select! {
            () = watch.run(CancellationToken::new()) => {}
            () = store.synced() => {}
        }
        assert!(back.elapsed() <= Duration::from_secs(2), "{:?}", back.elapsed());
    }
}
