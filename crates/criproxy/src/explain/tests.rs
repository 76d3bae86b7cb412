use std::time::Duration;

use tonic::Code;

use super::{ring::time, *};
use crate::{
    edit::{Amount, Cpuset, Field, Value},
    explain::decision::Change,
};

fn context(pod: &str, container: Option<&str>, id: Option<&str>) -> CallContext {
    CallContext {
        pod: pod.to_owned(),
        container: container.map(str::to_owned),
        id: id.map(str::to_owned),
        pod_id: container.map(|_| "sandbox-1".to_owned()),
        ..CallContext::default()
    }
}

fn keep(history: &History, context: &CallContext) -> u64 {
    let record = Record::new(POINT, Identity::of(context), &Body::default());
    history.keep(&context.records, record)
}

const POINT: HookPoint = HookPoint::PreCreateContainer;

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

async fn count(history: &History, name: &str) -> usize {
    history.explain(name).await.map_or(0, |explanation| explanation.decisions.len())
}

#[tokio::test]
async fn the_last_records_are_kept_and_no_more() {
    let history = History::bounded(3, usize::MAX);
    for number in 0..5 {
        keep(&history, &context(&format!("default/pod-{number}"), None, None));
    }
    assert_eq!(history.ring().len(), 3);
    assert_eq!(count(&history, "pod-2").await, 1);
    let miss = history.explain("pod-1").await.unwrap_err();
    assert!(miss.contains("\"pod-1\"") && miss.contains("the last 3 hook calls"), "{miss}");
    let oldest = history.explain("pod-2").await.unwrap().decisions.remove(0).time;
    assert!(miss.contains(&format!("has 3 since {oldest}")), "{oldest}: {miss}");
}

#[tokio::test]
async fn the_bytes_of_records_are_bounded_however_long_they_are() {
    const MOST: usize = 64 << 10;
    let history = History::bounded(usize::MAX, MOST);
    let long = "x".repeat(1 << 14);
    let mut most = 0;
    for number in 0..200 {
        let mut body = Body::default();
        body.asked((0..1000).map(|key| (Field::Label(format!("{key}{long}")), text(&long))));
        let edits: Vec<_> = (0..1000)
            .map(|key| Edit {
                field: Field::Unified(format!("{key}{long}")),
                from: text(&long),
                to: text(&long),
            })
            .collect();
        // One in ten, which is enough to fill the ring many times over.
        if number % 10 == 0 {
            let (changes, more_changes) = changes_of(&edits, ChangeEffect::Applied);
            assert!(more_changes > 900, "{more_changes}");
            let server = ServerDecision { changes, more_changes, ..ServerDecision::new("ok") };
            body.servers.push(server);
        }
        let context = context(&long, Some(&long), Some(&long));
        let record = Record::new(POINT, Identity::of(&context), &body);
        let kept = history.keep(&context.records, record);
        history.rehearsed(kept, &ServerDecision::new("ok"));
        let made = Made { pod: Some(long.clone()), containers: Vec::new() };
        history.ended(&context.records, Method::CreateContainer, Code::Ok, Duration::ZERO, &made);
        most = most.max(history.ring().bytes());
    }
    assert!(most <= MOST && most > MOST / 2, "{most}");
    assert!(history.ring().len() < 200, "records had to go");
}

#[tokio::test]
async fn bytes_are_counted_exactly_over_changes() {
    let history = History::bounded(10, usize::MAX);
    for number in 0..50 {
        let context = context("default/web", Some("nginx"), None);
        let kept = keep(&history, &context);
        history.rehearsed(kept, &ServerDecision::new("ok"));
        let id = format!("id-{number}");
        let made = Made { pod: None, containers: vec![(None, id)] };
        history.ended(&context.records, Method::CreateContainer, Code::Ok, Duration::ZERO, &made);
    }
    let ring = history.ring();
    assert_eq!((ring.len(), ring.bytes()), (10, ring.counted()));
}

#[tokio::test]
async fn an_empty_ring_takes_no_memory() {
    assert_eq!(History::default().ring().capacity(), 0);
}

#[tokio::test]
async fn ids_and_the_end_come_after_the_hooks() {
    let history = History::default();
    let context = context("default/web", Some("nginx"), None);
    keep(&history, &context);
    let before = history.explain("nginx").await.unwrap().decisions.remove(0);
    assert_eq!((before.call, before.identity.container_id), (None, None));
    let made = Made { pod: None, containers: vec![(None, "0123456789".to_owned())] };
    let took = Duration::from_micros(1500);
    history.ended(&context.records, Method::CreateContainer, Code::Ok, took, &made);
    let explanation = history.explain("01234").await.unwrap();
    assert_eq!(explanation.subject, "container default/web/nginx, id 0123456789");
    let after = &explanation.decisions[0];
    let end = CallEnd { method: "CreateContainer".into(), code: "OK".into(), took_us: 1500 };
    assert_eq!(after.call, Some(end));
    // What is dropped by then is nobody's.
    let history = History::bounded(1, usize::MAX);
    let (gone, kept) = (self::context("a/b", None, None), self::context("c/d", None, None));
    keep(&history, &gone);
    keep(&history, &kept);
    history.ended(&gone.records, Method::RunPodSandbox, Code::Ok, took, &Made::default());
    assert_eq!(history.explain("c/d").await.unwrap().decisions[0].call, None);
}

/// Two pods with a container of the same name, one of them made twice, and a pod of the same name
/// elsewhere.
fn several() -> History {
    let history = History::default();
    for (pod, sandbox, container, id) in [
        ("default/web", "aa11", Some("nginx"), Some("cc11")),
        ("default/web", "aa22", Some("nginx"), Some("cc22")),
        ("default/web", "aa22", Some("sidecar"), Some("dd11")),
        ("default/web", "aa22", None, None),
        ("default/db", "bb11", Some("sidecar"), Some("dd22")),
        ("other/db", "bb22", Some("db"), None),
    ] {
        let identity = match container {
            Some(name) => Identity::of_container(pod, Some(sandbox), name, id),
            None => Identity::of_pod(pod, Some(sandbox)),
        };
        let record = Record::new(POINT, identity, &Body::default());
        history.keep(&OfCall::default(), record);
    }
    history
}

#[tokio::test]
async fn names_ids_and_beginnings_of_ids_find_what_is_meant() {
    let history = several();
    for (name, subject, records) in [
        ("cc11", "container default/web/nginx, id cc11", 1),
        ("cc1", "container default/web/nginx, id cc11", 1),
        ("aa22", "pod default/web, sandbox aa22", 3),
        ("aa1", "pod default/web, sandbox aa11", 1),
        ("default/web", "pod default/web", 4),
        ("web", "pod default/web", 4),
        ("nginx", "container default/web/nginx", 2),
        ("default/web/sidecar", "container default/web/sidecar", 1),
        ("other/db", "pod other/db", 1),
        ("other/db/db", "container other/db/db", 1),
    ] {
        let explanation = history.explain(name).await.unwrap();
        assert_eq!((explanation.subject.as_str(), explanation.decisions.len()), (subject, records));
    }
}

#[tokio::test]
async fn what_is_not_clear_lists_what_it_could_be() {
    let history = several();
    for (name, candidates) in [
        ("sidecar", &["container default/db/sidecar", "container default/web/sidecar"][..]),
        ("db", &["pod default/db", "pod other/db"]),
        ("cc", &["default/web/nginx, id cc11", "default/web/nginx, id cc22"]),
        ("bb", &["pod default/db, sandbox bb11", "pod other/db, sandbox bb22"]),
    ] {
        let error = history.explain(name).await.unwrap_err();
        assert!(error.contains("the name of more than one"), "{error}");
        for candidate in candidates {
            assert!(error.contains(candidate), "no {candidate} in {error}");
        }
    }
    let error = history.explain("nobody").await.unwrap_err();
    assert!(error.contains("no hook call about \"nobody\" is kept"), "{error}");
    let error = history.explain("").await.unwrap_err();
    assert!(error.contains("no hook call"), "{error}");
}

#[test]
fn values_that_may_be_secrets_are_told_by_their_length() {
    let edit = |field, to: &str| Edit { field, from: Value::Absent, to: text(to) };
    let shown = |field, to: &str| Change::new(&edit(field, to), ChangeEffect::Applied).to;
    assert_eq!(shown(Field::Env("TOKEN".into()), "hunter2"), Shown::Hidden { bytes: 7 });
    assert_eq!(shown(Field::Annotation("a".into()), "hunter2"), Shown::Hidden { bytes: 7 });
    assert_eq!(shown(Field::Cpuset(Cpuset::Cpus), "0-3"), Shown::Text("0-3".into()));
    assert_eq!(shown(Field::Unified("memory.high".into()), "1"), Shown::Text("1".into()));
    let number = Shown::of(&Field::Amount(Amount::CpuShares), &Value::Number(2));
    assert_eq!(number, Shown::Number(2));
}

#[test]
fn every_kind_of_value_survives_its_encoding() {
    let values = [
        Shown::Absent,
        Shown::Number(-1),
        Shown::Text("\u{1b}[2J".to_owned()),
        Shown::Hidden { bytes: 7 },
    ];
    let text = serde_json::to_string(&values).unwrap();
    assert_eq!(text, r#"[null,-1,"\u001b[2J",{"bytes":7}]"#);
    assert_eq!(serde_json::from_str::<[Shown; 4]>(&text).unwrap(), values);
}

#[test]
fn an_error_does_not_quote_what_was_asked() {
    let error = "cannot read \"hunter2\", nor hunter2hunter2 at 1";
    let secrets = ["hunter2", "hunter2hunter2", "1", ""];
    assert_eq!(strike(error, secrets), "cannot read \"***\", nor *** at 1");
    let long = shown_error(&"x".repeat(1 << 20));
    assert!(long.len() < 1000, "{}", long.len());
}

#[test]
fn times_are_in_utc() {
    assert_eq!(time(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
}
