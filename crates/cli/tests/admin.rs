//! The admin endpoint with real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::routing::post;
use prometheus_client::{metrics::counter::Counter, registry::Registry};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use wharf_cli::{Admin, CheckFailure, process_metrics};

/// A running endpoint.
struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

async fn start(admin: Admin) -> Running {
    let bound = admin.bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (bound.local_addr(), CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(bound.serve(stop.clone()));
    Running { address, stop, tasks }
}

impl Running {
    async fn stop(mut self) {
        self.stop.cancel();
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    exchange(address, &request).await
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[tokio::test]
async fn checks_answer_ok_or_what_failed() {
    let admin = Admin::new()
        .check("/healthz", || async { Ok(()) })
        .check("/missing", || async { Err(CheckFailure::new(404, "no socket")) })
        .check("/odd", || async { Err(CheckFailure::new(7, "odd status")) });
    let running = start(admin).await;
    for (path, status, text) in [
        ("/healthz", "200 OK", "ok"),
        ("/missing", "404 Not Found", "no socket"),
        ("/odd", "500 Internal Server Error", "odd status"),
        ("/nowhere", "404 Not Found", ""),
    ] {
        let answer = get(running.address, path, "").await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
        assert_eq!(body(&answer), text);
    }
    running.stop().await;
}

#[tokio::test]
async fn metrics_come_in_the_format_asked_for() {
    let mut registry = Registry::default();
    let calls: Counter = Counter::default();
    calls.inc_by(3);
    registry.register("calls", "Calls made", calls);
    process_metrics(&mut registry);
    let running = start(Admin::new().metrics("/metrics", Arc::new(registry))).await;

    let plain = get(running.address, "/metrics", "").await;
    assert!(
        plain.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{plain}"
    );
    let expected = "# HELP calls_total Calls made.\n# TYPE calls_total counter\ncalls_total 3\n";
    assert!(body(&plain).starts_with(expected), "{plain}");
    assert!(!plain.contains("# EOF"), "{plain}");
    for name in [
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    ] {
        let samples = body(&plain).lines().filter(|line| line.starts_with(&format!("{name} ")));
        assert_eq!(samples.count(), 1, "{name} in {plain}");
        assert!(plain.contains(&format!("# TYPE {name} ")), "{name} in {plain}");
    }

    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    let open = get(running.address, "/metrics", accept).await;
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0"), "{open}");
    assert!(open.contains("# TYPE calls counter\ncalls_total 3\n"), "{open}");
    assert!(open.ends_with("# EOF\n"), "{open}");
    running.stop().await;
}

#[tokio::test]
async fn pprof_says_why_not() {
    let running = start(Admin::new().pprof()).await;
    for path in ["/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile?seconds=1"] {
        let answer = get(running.address, path, "").await;
        assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
        assert!(body(&answer).contains("perf record"), "{answer}");
    }
    running.stop().await;
}

#[tokio::test]
async fn bodies_are_limited() {
    let echo = post(|body: axum::body::Body| async {
        match axum::body::to_bytes(body, usize::MAX).await {
            Ok(bytes) => bytes.len().to_string(),
            Err(_) => "too much".to_owned(),
        }
    });
    let running = start(Admin::new().route("/echo", echo)).await;
    for (length, expected) in [(65_536, "65536"), (65_537, "too much")] {
        let request = format!(
            "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{}",
            "x".repeat(length)
        );
        assert_eq!(body(&exchange(running.address, &request).await), expected);
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_requests_and_idle_connections_are_cut() {
    let running = start(Admin::new().check("/healthz", || async { Ok(()) })).await;
    let started = Instant::now();
    let half = "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ";
    let cut = timeout(Duration::from_secs(60), exchange(running.address, half)).await;
    assert!(!cut.expect("cut in time").contains("200 OK"));
    assert!(started.elapsed() >= Duration::from_secs(10));

    let whole = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    let idle = timeout(Duration::from_secs(60), exchange(running.address, whole)).await;
    assert!(idle.expect("cut in time").starts_with("HTTP/1.1 200 OK"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn readers_that_dawdle_are_cut() {
    const LENGTH: usize = 64 << 20;
    let big = axum::routing::get(|| async { vec![b'x'; LENGTH] });
    let running = start(Admin::new().route("/big", big)).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream.readable().await.unwrap();
    tokio::time::sleep(Duration::from_secs(400)).await;
    let mut answer = Vec::new();
    // Closed in the middle: an end or a reset, never the whole answer.
    let _outcome = stream.read_to_end(&mut answer).await;
    assert!(answer.len() < LENGTH, "{}", answer.len());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_is_answered() {
    let running = start(Admin::new().check("/healthz", std::future::pending)).await;
    let answer = get(running.address, "/healthz", "").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    running.stop().await;
}

#[tokio::test]
async fn stop_finishes_answers_under_way() {
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (check_entered, check_leave) = (Arc::clone(&entered), Arc::clone(&leave));
    let admin = Admin::new().check("/healthz", move || {
        let (entered, leave) = (Arc::clone(&check_entered), Arc::clone(&check_leave));
        async move {
            entered.notify_one();
            leave.notified().await;
            Ok(())
        }
    });
    let running = start(admin).await;
    let address = running.address;
    let mut clients = JoinSet::new();
    clients.spawn(async move { get(address, "/healthz", "").await });
    entered.notified().await;
    running.stop.cancel();
    let refused = async { while TcpStream::connect(address).await.is_ok() {} };
    timeout(Duration::from_secs(10), refused).await.expect("stopped listening");
    leave.notify_one();
    let answer = clients.join_next().await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    timeout(Duration::from_secs(10), running.stop()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stop_does_not_wait_for_answers_that_hang() {
    let entered = Arc::new(Notify::new());
    let check_entered = Arc::clone(&entered);
    let admin = Admin::new().check("/healthz", move || {
        check_entered.notify_one();
        std::future::pending()
    });
    let running = start(admin).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    entered.notified().await;
    let started = Instant::now();
    running.stop().await;
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_refused_address_names_the_flag() {
    let bound = Admin::new().bind("127.0.0.1:0").await.unwrap();
    let taken = bound.local_addr().to_string();
    let error = Admin::new().flag("metrics-address").bind(&taken).await.unwrap_err();
    assert_eq!(error.to_string(), format!("--metrics-address: cannot listen on {taken}"));
    let error = Admin::new().bind("8080").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "--http-endpoint: bad address \"8080\": missing port in address; expected host:port or :port"
    );
}

#[tokio::test]
async fn a_bare_port_listens_on_all_interfaces() {
    let bound = Admin::new().check("/healthz", || async { Ok(()) }).bind(":0").await.unwrap();
    assert!(bound.local_addr().ip().is_unspecified());
    let port = bound.local_addr().port();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(bound.serve(stop.clone()));
    let answer = get(SocketAddr::from(([127, 0, 0, 1], port)), "/healthz", "").await;
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}
