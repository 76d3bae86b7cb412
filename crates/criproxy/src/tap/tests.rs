use std::time::Duration;

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::UnixStream,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::*;
use crate::{explain::Made, handover, identity::Identity, record::Records};

const DEADLINE: Duration = Duration::from_secs(20);
const CREATE: &str = "/runtime.v1.RuntimeService/CreateContainer";

fn call(method: &str, pod: &str, container: Option<&str>) -> TapCall {
    let identity = match container {
        Some(name) => Identity::of_container(pod, Some("aa11"), name, Some("cc11")),
        None => Identity::of_pod(pod, None),
    };
    TapCall {
        event: TapEvent::Call,
        time: String::new(),
        method: method.to_owned(),
        identity,
        total_us: None,
        hooks_us: None,
        runtime_us: None,
        code: None,
        client_disconnected: false,
    }
}

fn wants(filter: impl FnOnce(&mut TapFilter), call: &TapCall) -> bool {
    let mut wanted = TapFilter::default();
    filter(&mut wanted);
    wanted.wants(call)
}

#[test]
fn filters_match_one_of_each_kind() {
    let call = call(CREATE, "ci-1/build", Some("main"));
    assert!(wants(|_| {}, &call));
    for (method, is_wanted) in [
        ("CreateContainer", true),
        ("createcontainer", true),
        ("runtime.v1.RuntimeService/CreateContainer", true),
        (CREATE, true),
        ("Container", false),
        ("", false),
    ] {
        assert_eq!(wants(|it| it.methods = vec![method.into()], &call), is_wanted, "{method}");
    }
    for (pod, is_wanted) in
        [("build", true), ("ci-1/build", true), ("aa1", true), ("ci-2/build", false), ("", false)]
    {
        assert_eq!(wants(|it| it.pods = vec![pod.into()], &call), is_wanted, "{pod}");
    }
    for (container, is_wanted) in [("main", true), ("cc", true), ("other", false), ("", false)] {
        assert_eq!(wants(|it| it.containers = vec![container.into()], &call), is_wanted);
    }
    assert!(wants(|it| it.namespaces = vec!["x".into(), "ci-1".into()], &call));
    assert!(!wants(|it| it.namespaces = vec!["ci".into()], &call));
    let both = |it: &mut TapFilter| {
        it.namespaces = vec!["ci-1".into()];
        it.methods = vec!["StopContainer".into()];
    };
    assert!(!wants(both, &call), "one of each kind has to match");
}

#[test]
fn calls_that_nobody_knows_more_of_match_no_name() {
    let call = call("/runtime.v1.RuntimeService/Version", "", None);
    assert!(wants(|it| it.methods = vec!["version".into()], &call));
    for name in ["", "build"] {
        assert!(!wants(|it| it.namespaces = vec![name.into()], &call));
        assert!(!wants(|it| it.pods = vec![name.into()], &call));
        assert!(!wants(|it| it.containers = vec![name.into()], &call));
    }
}

async fn next(calls: &mut Calls) -> TapLine {
    timeout(DEADLINE, calls.next()).await.expect("a line")
}

#[tokio::test]
async fn nobody_watches_unless_there_is_a_reader() {
    let taps = Taps::default();
    assert!(taps.begin(CREATE).is_none());
    let calls = taps.join(TapFilter::default()).unwrap();
    let watched = taps.begin(CREATE).unwrap();
    drop(calls);
    // Its reader left meanwhile.
    watched.finish(Code::Ok.into());
    assert!(taps.begin(CREATE).is_none());
}

#[tokio::test]
async fn a_call_is_shown_once_at_its_end_and_a_stream_twice() {
    let taps = Taps::default();
    let mut calls = taps.join(TapFilter::default()).unwrap();
    let mut watched = taps.begin(CREATE).unwrap();
    watched.identify(Some(Identity::of_container("ci-1/build", Some("aa11"), "main", None)));
    let made = Made { pod: None, containers: vec![(None, "cc11".to_owned())] };
    watched.intercepted(Duration::from_millis(2), Duration::from_millis(5), false, &made);
    assert!(calls.try_next().is_none(), "it has not ended");
    watched.finish(Code::NotFound.into());
    let TapLine::Call(shown) = next(&mut calls).await else { panic!("a call") };
    assert_eq!((shown.event, shown.code.as_deref()), (TapEvent::Call, Some("NotFound")));
    assert_eq!((shown.hooks_us, shown.runtime_us), (Some(2000), Some(5000)));
    assert_eq!(shown.identity.container_id.as_deref(), Some("cc11"));
    assert!(!shown.client_disconnected && shown.total_us.is_some());

    let stream = taps.begin("/runtime.v1.RuntimeService/GetContainerEvents").unwrap();
    let TapLine::Call(shown) = next(&mut calls).await else { panic!("a call") };
    assert_eq!((shown.event, shown.code), (TapEvent::StreamStarted, None));
    // Cut, as by a proxy that stops.
    drop(stream);
    let TapLine::Call(shown) = next(&mut calls).await else { panic!("a call") };
    assert_eq!((shown.event, shown.code.as_deref()), (TapEvent::StreamEnded, Some("Canceled")));
}

#[tokio::test]
async fn a_reader_that_does_not_read_loses_calls_and_hears_how_many() {
    let taps = Taps::default();
    let mut slow = taps.join(TapFilter::default()).unwrap();
    let filter = TapFilter { methods: vec!["Version".into()], ..TapFilter::default() };
    let mut other = taps.join(filter).unwrap();
    for _ in 0..QUEUE + 7 {
        taps.begin(CREATE).unwrap().finish(Code::Ok.into());
    }
    assert!(other.try_next().is_none(), "what it does not want is not dropped for it either");
    assert_eq!(next(&mut slow).await, TapLine::Dropped(7));
    for _ in 0..QUEUE {
        assert!(matches!(slow.try_next(), Some(TapLine::Call(_))));
    }
    assert!(slow.try_next().is_none(), "it was told once");
}

#[tokio::test]
async fn readers_are_few() {
    let taps = Taps::default();
    let mut readers: Vec<_> = (0..MOST).map(|_| taps.join(TapFilter::default()).unwrap()).collect();
    let Err(error) = taps.join(TapFilter::default()) else { panic!("one too many") };
    assert!(error.contains("8 taps are open"), "{error}");
    readers.pop();
    assert!(taps.join(TapFilter::default()).is_ok());
}

/// A tap over a socket, of which the other end is returned.
fn served(taps: &Taps, stop: &CancellationToken) -> (UnixStream, JoinSet<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let calls = taps.join(TapFilter::default()).unwrap();
    let ending = Ending { calls: handover::Calls::new(Records::default()), stop: stop.clone() };
    let mut serving = JoinSet::new();
    serving.spawn(calls.serve(theirs, "\"tapping\"".to_owned(), ending));
    (ours, serving)
}

async fn ends(mut serving: JoinSet<()>) {
    timeout(DEADLINE, serving.join_next()).await.expect("the tap ends").unwrap().unwrap();
}

#[tokio::test]
async fn a_tap_ends_with_its_reader() {
    let taps = Taps::default();
    let (reader, serving) = served(&taps, &CancellationToken::new());
    drop(reader);
    ends(serving).await;
    assert!(taps.begin(CREATE).is_none());
}

#[tokio::test]
async fn a_tap_of_a_proxy_that_stops_shows_what_there_is_and_says_so() {
    let (taps, stop) = (Taps::default(), CancellationToken::new());
    let (reader, serving) = served(&taps, &stop);
    taps.begin(CREATE).unwrap().finish(Code::Ok.into());
    stop.cancel();
    ends(serving).await;
    let mut lines = BufReader::new(reader).lines();
    let mut read = Vec::new();
    while let Some(line) = timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap() {
        read.push(line);
    }
    let last: TapLine = serde_json::from_str(read.last().unwrap()).unwrap();
    assert_eq!(last, TapLine::End(TapEnd::Stopping));
    assert!(read.iter().any(|line| line.contains(CREATE)), "{read:?}");
}

/// The bound on the time is that of the calls: none waits for the reader.
#[tokio::test]
async fn a_reader_that_stalls_holds_nobody_up_and_the_tap_still_ends() {
    let (taps, stop) = (Taps::default(), CancellationToken::new());
    let (mut reader, serving) = served(&taps, &stop);
    let mut first = [0; 9];
    timeout(DEADLINE, reader.read_exact(&mut first)).await.unwrap().unwrap();
    // More than the socket and the queue hold. Each of these returns at once, or the test would
    // never end.
    for _ in 0..50 * QUEUE {
        taps.begin(CREATE).unwrap().finish(Code::Ok.into());
        tokio::task::yield_now().await;
    }
    let dropped = taps.readers()[0].dropped.load(Ordering::Relaxed);
    assert!(dropped > 0, "the queue is bounded");
    stop.cancel();
    ends(serving).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stalls_for_long_gives_its_place_up() {
    let taps = Taps::default();
    let (_reader, serving) = served(&taps, &CancellationToken::new());
    let mut calls = JoinSet::new();
    let busy = taps.clone();
    calls.spawn(async move {
        while let Some(call) = busy.begin(CREATE) {
            call.finish(Code::Ok.into());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    serving.join_all().await;
    calls.join_all().await;
}
