//! What is kept of a round: which answer was applied, and why another was not.

use std::time::Duration;

use tonic::Code;
use wharf_proto::hooks::{
    ContainerDetails, ContainerResourceHookRequest, ContainerResourceHookResponse,
    LinuxContainerResources,
};

use super::{
    fixture::{Fixture, POINT, context, map, soon},
    server::HookServer,
    subject::Container,
};
use crate::{
    ChangeEffect, Decision, HookPoint, ServerDecision, Verdict,
    chain::{CallContext, ChainOptions, Conflict, Outcome},
    config::{FailurePolicy, Server},
    container,
    subject::{Reading, Subject},
};

const SECRET: &str = "hunter2-correct-horse";

/// The records of the container that tests ask about.
async fn records(fixture: &Fixture) -> Vec<Decision> {
    fixture.chain.history.explain("default/web/nginx").await.unwrap().decisions
}

/// The only record.
async fn record(fixture: &Fixture) -> Decision {
    let mut records = records(fixture).await;
    assert_eq!(records.len(), 1, "{records:?}");
    records.remove(0)
}

/// The fields that an answer changes, what became of them, and why.
fn changes(server: &ServerDecision) -> Vec<(&str, ChangeEffect, &str)> {
    let changes = server.changes.iter();
    changes
        .map(|it| (it.field.as_str(), it.effect, it.why.as_deref().unwrap_or_default()))
        .collect()
}

/// Servers `a` and `b` that both want FOO, and each something of its own.
fn fighters(fixture: &Fixture) -> [HookServer; 2] {
    ["a", "b"].map(|name| {
        HookServer::start(&fixture.socket(name), move |_| async move {
            let container_envs = map(&[("FOO", name), (name, "1")]);
            Ok(ContainerResourceHookResponse { container_envs, ..Default::default() })
        })
    })
}

#[tokio::test]
async fn a_conflict_names_the_owner_and_the_rule() {
    use ChangeEffect::{Applied, Overridden, Refused};
    let whole = "its answer is refused as a whole";
    let refuse = "a changed it before, and --on-conflict is refuse";
    let first = "a changed it before, and --on-conflict is first";
    let last = "b changed it later, and --on-conflict is last";
    for (conflict, outcome, of_a, of_b) in [
        (
            Conflict::Refuse,
            "conflict",
            [("envs[FOO]", Applied, ""), ("envs[a]", Applied, "")],
            [("envs[FOO]", Refused, refuse), ("envs[b]", Refused, whole)],
        ),
        (
            Conflict::First,
            "ok",
            [("envs[FOO]", Applied, ""), ("envs[a]", Applied, "")],
            [("envs[FOO]", Refused, first), ("envs[b]", Applied, "")],
        ),
        (
            Conflict::Last,
            "ok",
            [("envs[FOO]", Overridden, last), ("envs[a]", Applied, "")],
            [("envs[FOO]", Applied, ""), ("envs[b]", Applied, "")],
        ),
    ] {
        let fixture = Fixture::resolving(conflict);
        let _servers = fighters(&fixture);
        fixture.serve(["a", "b"].map(|name| fixture.server(name, FailurePolicy::Ignore)));
        fixture.ask().await.unwrap();
        let record = record(&fixture).await;
        let [a, b] = &record.body.servers[..] else { panic!("{record:?}") };
        assert_eq!((changes(a), changes(b)), (of_a.into(), of_b.into()), "{conflict:?}");
        assert_eq!((a.outcome.as_str(), b.outcome.as_str()), ("ok", outcome));
        assert_eq!(b.policy.as_deref(), (outcome != "ok").then_some("Ignore"));
        assert_eq!(record.body.verdict, Verdict::WentOn);
    }
}

#[tokio::test]
async fn a_refused_call_undoes_what_was_applied_and_asks_nobody_else() {
    let fixture = Fixture::new();
    let _servers = fighters(&fixture);
    let _failing = HookServer::failing(&fixture.socket("b2"), Code::Aborted, "never");
    let last = HookServer::idle(&fixture.socket("c"));
    fixture.serve([
        fixture.server("a", FailurePolicy::Ignore),
        fixture.server("b2", FailurePolicy::Fail),
        fixture.server("c", FailurePolicy::Fail),
    ]);
    fixture.ask().await.unwrap_err();
    let record = record(&fixture).await;
    assert_eq!(record.body.verdict, Verdict::Refused);
    let [a, b, c] = &record.body.servers[..] else { panic!("{record:?}") };
    let undone = |field| (field, ChangeEffect::Undone, "the call was refused");
    assert_eq!(changes(a), [undone("envs[FOO]"), undone("envs[a]")]);
    assert_eq!((b.outcome.as_str(), b.error.as_deref()), ("Aborted", Some("never")));
    assert_eq!(b.policy.as_deref(), Some("Fail"));
    assert_eq!(c.outcome, "not-asked");
    assert!(c.took_us.is_none() && last.asked().is_empty());
}

#[tokio::test]
async fn servers_that_hang_are_told_from_those_that_are_left_out() {
    let budget = Duration::from_secs(1);
    let fixture = Fixture::with(ChainOptions { budget, ..ChainOptions::default() });
    let _server = HookServer::hanging(&fixture.socket("a"));
    fixture.serve([fixture.server("a", FailurePolicy::Ignore)]);
    fixture.ask().await.unwrap();
    fixture.ask().await.unwrap();
    let records = records(&fixture).await;
    let [first, second] = &records[..] else { panic!("{records:?}") };
    let [hung] = &first.body.servers[..] else { panic!("{first:?}") };
    assert_eq!(hung.outcome, "timeout");
    assert!(hung.took_us >= hung.given_us.map(|given| given * 9 / 10), "{hung:?}");
    assert!(hung.given_us.unwrap() > 900_000, "{hung:?}");
    assert!(!hung.error.as_ref().unwrap().contains("no more time"), "it had all of it: {hung:?}");
    let [left_out] = &second.body.servers[..] else { panic!("{second:?}") };
    assert_eq!((left_out.outcome.as_str(), left_out.took_us), ("left-out", None));
    let why = "it hung before, and is left out until it answers again";
    assert_eq!(left_out.error.as_deref(), Some(why));
}

#[tokio::test]
async fn a_budget_that_is_spent_says_so() {
    let budget = Duration::from_millis(300);
    let fixture = Fixture::with(ChainOptions { budget, ..ChainOptions::default() });
    let _greedy = HookServer::hanging(&fixture.socket("a"));
    let _late = HookServer::hanging(&fixture.socket("b"));
    let timeout = Some(budget);
    let greedy = Server { timeout, ..fixture.server("a", FailurePolicy::Ignore) };
    fixture.serve([greedy, fixture.server("b", FailurePolicy::Ignore)]);
    fixture.ask().await.unwrap();
    let record = record(&fixture).await;
    let [_, late] = &record.body.servers[..] else { panic!("{record:?}") };
    assert_eq!(late.outcome, "timeout");
    let error = late.error.as_ref().unwrap();
    assert!(error.contains("servers before it, or the caller's deadline, left it no more time"));
}

#[tokio::test]
async fn a_dry_run_is_part_of_the_record_of_its_call() {
    let fixture = Fixture::new();
    let _servers = fighters(&fixture);
    let rehearsed = Server { dry_run: true, ..fixture.server("b", FailurePolicy::Fail) };
    fixture.serve([fixture.server("a", FailurePolicy::Ignore), rehearsed]);
    fixture.ask().await.unwrap();
    let record = soon(async {
        loop {
            let record = record(&fixture).await;
            if record.body.servers.len() == 2 {
                return record;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let dry_run = &record.body.servers[1];
    assert!(dry_run.dry_run && dry_run.outcome == "ok", "{dry_run:?}");
    let different = "different: others changed it otherwise";
    let expected = [
        ("envs[FOO]", ChangeEffect::DryRun, different),
        ("envs[b]", ChangeEffect::DryRun, "new: nobody changed the field"),
    ];
    assert_eq!(changes(dry_run), expected);
    assert_eq!(record.body.verdict, Verdict::WentOn);
}

#[tokio::test]
async fn a_caller_that_leaves_is_told_from_a_server_that_fails() {
    let fixture = Fixture::new();
    let _idle = HookServer::idle(&fixture.socket("a"));
    let stuck = HookServer::hanging(&fixture.socket("b"));
    fixture.serve(["a", "b"].map(|name| fixture.server(name, FailurePolicy::Fail)));
    let is_asked = async {
        while stuck.asked().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        _ = fixture.ask() => panic!("nobody answers"),
        () = soon(is_asked) => {}
    }
    let record = record(&fixture).await;
    assert_eq!(record.body.verdict, Verdict::Abandoned);
    let outcomes: Vec<_> = record.body.servers.iter().map(|it| it.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ok", "abandoned"]);
}

#[tokio::test]
async fn servers_that_are_told_afterwards_are_kept_with_their_failures() {
    let fixture = Fixture::new();
    let _well = HookServer::idle(&fixture.socket("a"));
    let _broken = HookServer::failing(&fixture.socket("b"), Code::Internal, "broken");
    let point = HookPoint::PostStopContainer;
    let notified =
        |name, policy| Server { hooks: [(point, policy)].into(), ..fixture.server(name, policy) };
    fixture.serve([notified("a", FailurePolicy::Ignore), notified("b", FailurePolicy::Fail)]);
    let outcome =
        Outcome { code: Code::Ok, message: String::new(), duration: Duration::from_millis(1) };
    let (request, nobody) = (ContainerResourceHookRequest::default(), [].into());
    soon(fixture.chain.notify::<Container>(point, &context(), request, &outcome, &nobody)).await;
    let record = record(&fixture).await;
    assert_eq!(
        (record.hook.as_str(), record.body.verdict),
        ("PostStopContainer", Verdict::Refused)
    );
    let outcomes: Vec<_> = record.body.servers.iter().map(|it| it.outcome.as_str()).collect();
    assert_eq!(outcomes, ["ok", "Internal"]);
    // A round without servers leaves no record.
    fixture.serve([]);
    let request = ContainerResourceHookRequest::default();
    soon(fixture.chain.notify::<Container>(point, &context(), request, &outcome, &nobody)).await;
    assert_eq!(records(&fixture).await.len(), 1);
}

#[tokio::test]
async fn no_secret_is_kept_whatever_a_server_does_with_it() {
    let fixture = Fixture::new();
    let _changing = HookServer::start(&fixture.socket("a"), |_| async {
        Ok(ContainerResourceHookResponse {
            container_envs: map(&[("TOKEN", &format!("{SECRET}, changed"))]),
            container_annotations: map(&[("vault", &format!("{SECRET}, too"))]),
            ..Default::default()
        })
    });
    let _quoting = HookServer::start(&fixture.socket("b"), |asked| async move {
        let envs = &asked.message.container_envs["TOKEN"];
        let pod = &asked.message.pod_annotations["pod-vault"];
        let args = &asked.message.details.as_ref().unwrap().args;
        let text = format!("bad values {envs:?}, {pod:?}, {args:?} and {:?}", "harmless");
        Err(tonic::Status::invalid_argument(text))
    });
    let details = true;
    fixture.serve(
        ["a", "b"].map(|name| Server { details, ..fixture.server(name, FailurePolicy::Ignore) }),
    );
    let encoded_pod = ContainerResourceHookRequest {
        pod_annotations: map(&[("pod-vault", &format!("{SECRET} of the pod"))]),
        ..Default::default()
    };
    let args = vec![format!("--password={SECRET}")];
    let details = ContainerResourceHookRequest {
        details: Some(ContainerDetails { args, ..Default::default() }),
        ..Default::default()
    };
    let [encoded_pod, details] =
        [encoded_pod, details].map(|it| prost::Message::encode_to_vec(&it).into());
    let context = CallContext { encoded_pod, details, ..context() };
    let request = ContainerResourceHookRequest {
        container_envs: map(&[("TOKEN", SECRET)]),
        container_annotations: map(&[("vault", SECRET)]),
        container_resources: Some(LinuxContainerResources { cpu_shares: 2, ..Default::default() }),
        ..Default::default()
    };
    soon(fixture.chain.ask::<Container>(POINT, &context, request)).await.unwrap();
    let status = &fixture.chain.failures()["b"];
    assert!(!status.contains("hunter2") && status.contains("harmless"), "{status}");
    let record = record(&fixture).await;
    let text = serde_json::to_string(&record).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    // It is the right record.
    assert!(text.contains(r#""envs[TOKEN]":{"bytes":21}"#), "{text}");
    assert!(text.contains(r#""cpu_shares":2"#), "{text}");
    assert!(text.contains("harmless") && text.contains("***"), "{text}");
}

#[test]
fn a_value_out_of_range_is_ignored_and_zero_is_no_value() {
    let resources = |cpu_shares, oom_score_adj| LinuxContainerResources {
        cpu_shares,
        oom_score_adj,
        ..Default::default()
    };
    let sent = ContainerResourceHookRequest {
        container_resources: Some(resources(2, 10)),
        ..Default::default()
    };
    let ignored = |answered| {
        let answer = ContainerResourceHookResponse {
            container_resources: Some(answered),
            ..Default::default()
        };
        let edits = container::Container::ignored(POINT, &sent, &answer, Reading::default());
        edits.into_iter().map(|edit| edit.field.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ignored(resources(-1, 5000)), ["cpu_shares", "oom_score_adj"]);
    assert!(ignored(resources(0, 0)).is_empty());
    assert!(ignored(resources(3, 20)).is_empty());
}

/// The most dry runs at a time.
const DRY_RUNS: usize = 256;

#[tokio::test]
async fn a_dry_run_too_many_is_skipped_and_says_so() {
    let fixture = Fixture::new();
    let _stuck = HookServer::hanging(&fixture.socket("a"));
    let dry_run = Server { dry_run: true, ..fixture.server("a", FailurePolicy::Ignore) };
    fixture.serve([dry_run]);
    for _ in 0..=DRY_RUNS {
        fixture.ask().await.unwrap();
    }
    // Those that are under way are not told yet.
    let mut records = records(&fixture).await;
    assert!(records.iter().take(DRY_RUNS).all(|record| record.body.servers.is_empty()));
    let record = records.pop().unwrap();
    let [skipped] = &record.body.servers[..] else { panic!("{record:?}") };
    assert!(skipped.dry_run && skipped.took_us.is_none(), "{skipped:?}");
    assert_eq!(skipped.outcome, "skipped");
    assert_eq!(skipped.error.as_deref(), Some("256 dry runs are under way"));
    assert_eq!(record.body.verdict, Verdict::WentOn);
    fixture.counted(
        r#"wharf_proxy_hook_calls_total{server="a",hook="PreCreateContainer",outcome="skipped"} 1"#,
    );
}

#[tokio::test]
async fn a_server_that_is_not_trusted_is_named_with_the_reason() {
    let fixture = Fixture::new();
    let server = HookServer::idle(&fixture.socket("a"));
    fixture.set_mode(0o777);
    fixture.serve([fixture.server("a", FailurePolicy::Ignore)]);
    fixture.ask().await.unwrap();
    assert!(server.asked().is_empty());
    let record = record(&fixture).await;
    let [untrusted] = &record.body.servers[..] else { panic!("{record:?}") };
    assert_eq!(untrusted.outcome, "untrusted");
    assert_eq!(untrusted.policy.as_deref(), Some("Ignore"));
    let error = untrusted.error.as_ref().unwrap();
    assert!(error.contains("its mode 0777 lets others write to it"), "{error}");
}
