use proptest::prelude::*;

use super::*;
use crate::fuzz::hook_server_file;

fn read(text: &str) -> (Server, Vec<FileWarning>) {
    parse("a.json", text.as_bytes()).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn refused(text: &str) -> String {
    match parse("a.json", text.as_bytes()) {
        Ok(server) => panic!("{server:?} from {text}"),
        Err(error) => error.to_string(),
    }
}

fn with(keys: &str) -> String {
    format!("{{\"remote-endpoint\": \"/a.sock\",\n{keys}}}")
}

/// As Go's MarshalIndent writes it.
#[test]
fn koordlets_own_file() {
    let (server, warnings) = read(
        "{\n\t\"remote-endpoint\": \"/var/run/koordlet/koordlet.sock\",\n\t\"failure-policy\": \
         \"Ignore\",\n\t\"runtime-hooks\": [\n\t\t\"PreRunPodSandbox\",\n\t\t\
         \"PreCreateContainer\",\n\t\t\"PreUpdateContainerResources\"\n\t]\n}",
    );
    let hooks = [
        HookPoint::PreRunPodSandbox,
        HookPoint::PreCreateContainer,
        HookPoint::PreUpdateContainerResources,
    ];
    let expected = Server {
        hooks: hooks.map(|point| (point, FailurePolicy::Ignore)).into(),
        ..Server::new("a.json", "/var/run/koordlet/koordlet.sock")
    };
    assert_eq!((server, warnings), (expected, Vec::new()));
}

#[test]
fn a_user_is_a_number() {
    let (server, _) = read(&with(r#""uid": 1000"#));
    assert_eq!(server.uid, Some(1000));
    for uid in ["-1", "\"www\"", "4294967296", "1.5"] {
        let error = refused(&with(&format!("\"uid\": {uid}")));
        assert!(error.starts_with("uid: "), "{error}");
    }
}

#[test]
fn answers_are_koordinators_unless_they_are_partial() {
    assert_eq!(read(&with(r#""order": 1"#)).0.answers, Answers::Koordinator);
    let (server, _) = read(&with(r#""answers": "partial", "details": true"#));
    assert_eq!((server.answers, server.details), (Answers::Partial, true));
    assert_eq!(read(&with(r#""answers": "koordinator""#)).0.answers, Answers::Koordinator);
    let error = refused(&with(r#""answers": "Partial""#));
    assert!(error.contains("expected \"partial\""), "{error}");
}

#[test]
fn a_dry_run_refuses_nothing() {
    let keys = r#""dry-run": true, "required": true, "failure-policy": "Fail",
        "runtime-hooks": ["PreCreateContainer", "PostStopContainer"],
        "failure-policies": {"PostStopContainer": "Fail"}"#;
    let (server, warnings) = read(&with(keys));
    assert!(server.dry_run && !server.required);
    assert!(server.hooks.values().all(|policy| *policy == FailurePolicy::Ignore), "{server}");
    assert_eq!(warnings, [FileWarning::RequiredDryRun]);
    assert!(refusing_points(with(&format!("\"order\": \"x\", {keys}")).as_bytes()).is_empty());
}

/// A koordlet of 1.5 knows a hook that has no call to it.
#[test]
fn hooks_of_other_versions_are_told_and_left_out() {
    let (server, warnings) =
        read(&with(r#""runtime-hooks": ["PreRemoveRunPodSandbox", "PostStopContainer"]"#));
    let hooks: Vec<_> = server.hooks.keys().copied().collect();
    assert_eq!(hooks, [HookPoint::PostStopContainer]);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let text = warning.to_string();
    assert!(
        text.contains("\"PreRemoveRunPodSandbox\"") && text.contains("PreRunPodSandbox, "),
        "{text}"
    );
}

#[test]
fn a_policy_for_a_hook_comes_before_that_of_the_server() {
    let (server, warnings) = read(&with(
        r#""failure-policy": "Fail", "order": -3, "timeout": "1m0.5s",
           "runtime-hooks": ["PreCreateContainer", "PreStartContainer"],
           "failure-policies": {"PreStartContainer": "Ignore", "PostStopContainer": "Fail"}"#,
    ));
    let hooks = [
        (HookPoint::PreCreateContainer, FailurePolicy::Fail),
        (HookPoint::PreStartContainer, FailurePolicy::Ignore),
    ];
    assert_eq!(server.hooks, hooks.into());
    assert_eq!((server.order, server.timeout), (-3, Some(Duration::from_millis(60_500))));
    assert_eq!(warnings, [FileWarning::IdlePolicy(HookPoint::PostStopContainer)]);
}

/// The runtime has done its part by then: failing the call would make pods unstoppable.
#[test]
fn the_policy_of_the_server_does_not_count_for_post_hooks() {
    let (server, warnings) = read(&with(
        r#""failure-policy": "Fail",
           "runtime-hooks": ["PreStartContainer", "PostStartContainer", "PostStopContainer"],
           "failure-policies": {"PostStopContainer": "Fail"}"#,
    ));
    let hooks = [
        (HookPoint::PreStartContainer, FailurePolicy::Fail),
        (HookPoint::PostStartContainer, FailurePolicy::Ignore),
        (HookPoint::PostStopContainer, FailurePolicy::Fail),
    ];
    assert_eq!((server.hooks, warnings), (hooks.into(), Vec::new()));
}

#[test]
fn a_file_can_say_that_it_must_be_there() {
    let hooks = r#""runtime-hooks": ["PreStartContainer"]"#;
    let (server, warnings) = read(&with(&format!(r#"{hooks}, "Required": true"#)));
    assert_eq!((server.required, warnings), (true, vec![FileWarning::RequiredAndIgnored]));
    let fail = format!(r#"{hooks}, "required": true, "failure-policy": "Fail""#);
    assert_eq!(read(&with(&fail)).1, []);
    assert!(!read(&with(hooks)).0.required);
    assert!(refused(&with(r#""required": "yes""#)).starts_with("required: invalid type"));
}

#[test]
fn a_refused_file_is_believed_where_it_makes_things_safer() {
    let start = r#""runtime-hooks": ["PreStartContainer", "PostStopContainer", "Other"]"#;
    let all: Vec<_> = HookPoint::ALL.into_iter().filter(|point| point.is_before()).collect();
    let one = vec![HookPoint::PreStartContainer];
    let policies = r#""failure-policies": {"PreStartContainer": "Fail"}"#;
    let ignore = r#""failure-policies": {"PreStartContainer": "Ignore"}"#;
    for (text, expected) in [
        (format!(r#"{{{start}, "failure-policy": "Fail"}}"#), one.clone()),
        (format!(r#"{{{start}, "FAILURE-policy": "fail"}}"#), one.clone()),
        (format!(r#"{{{start}, "required": true}}"#), one.clone()),
        (format!(r#"{{{start}, {policies}}}"#), one),
        (format!(r#"{{{start}, "failure-policy": "Fail", {ignore}}}"#), vec![]),
        (format!(r#"{{{start}}}"#), vec![]),
        (r#"{"runtime-hooks": "all", "failure-policy": "Fail"}"#.to_owned(), all),
        (r#"{"failure-policy": "Fail"}"#.to_owned(), vec![]),
        (format!(r#"{{{start}, "failure-policy": "Fail""#), vec![]),
        ("[]".to_owned(), vec![]),
    ] {
        let points: Vec<_> = refusing_points(text.as_bytes()).into_iter().collect();
        assert_eq!(points, expected, "{text}");
    }
}

#[test]
fn endpoints_as_people_write_them() {
    for endpoint in ["/run/a.sock", "unix:///run/a.sock", "unix:/run/a.sock"] {
        let (server, _) = read(&format!("{{\"remote-endpoint\": \"{endpoint}\"}}"));
        assert_eq!(server.endpoint, PathBuf::from("/run/a.sock"), "{endpoint}");
    }
    for endpoint in ["", "a.sock", "unix://a.sock", "tcp://1.2.3.4:5", "@abstract", "/a\\u0000b"] {
        let error = refused(&format!("{{\"remote-endpoint\": \"{endpoint}\"}}"));
        assert!(error.starts_with("remote-endpoint: endpoint "), "{error}");
    }
}

#[test]
fn as_go_reads_json() {
    let (server, warnings) = read(&with(
        r#""Failure-Policy": "Fail", "order": 1, "order": 2, "timeout": null, "comment": [{}],
           "RUNTIME-HOOKS": ["PreStartContainer"], "failure-policies": null"#,
    ));
    assert_eq!(server.hooks, [(HookPoint::PreStartContainer, FailurePolicy::Fail)].into());
    assert_eq!(server.order, 2);
    let expected = [FileWarning::RepeatedKey("order"), FileWarning::UnknownKey("comment".into())];
    assert_eq!(warnings, expected);
    let (server, warnings) = read(&with(r#""failure-policy": """#));
    assert!(server.hooks.is_empty());
    assert_eq!(warnings, [FileWarning::NoHooks]);
}

#[test]
fn errors_name_key_and_line() {
    for (text, expected) in [
        ("{}", "remote-endpoint is missing: expected the path of the hook server's socket"),
        (
            &with(r#""failure-policy": "fail""#),
            "failure-policy: expected \"Fail\" or \"Ignore\", got \"fail\"",
        ),
        (
            &with(r#""runtime-hooks": "PreStartContainer""#),
            "runtime-hooks: invalid type: string \"PreStartContainer\", expected a sequence",
        ),
        (&with(r#""order": "1""#), "order: invalid type: string \"1\", expected i64"),
        (&with(r#""timeout": "5""#), "timeout: time: missing unit in duration \"5\""),
        (
            &with(r#""timeout": "-1s""#),
            "timeout: expected a duration above zero, such as 500ms, got \"-1s\"",
        ),
        (
            &with(r#""failure-policies": {"PreStartContainer": "No"}"#),
            "failure-policies: PreStartContainer: expected \"Fail\" or \"Ignore\", got \"No\"",
        ),
    ] {
        let error = refused(text);
        let (what, place) = error.split_once(" at line ").unwrap_or((&error, "2 column"));
        assert_eq!(what, expected);
        assert!(place.starts_with("2 column"), "{error}");
    }
    let error = refused(&with(r#""failure-policies": {"PreStart": "Fail"}"#));
    assert!(
        error.contains("\"PreStart\" is not a hook; expected one of PreRunPodSandbox,"),
        "{error}"
    );
    let error = refused("{\"remote-endpoint\": \"/a\"} trailing");
    assert!(error.contains("trailing characters at line 1"), "{error}");
    let error = refused(&with(&format!("\"failure-policy\": \"{}\"", "x".repeat(10_000))));
    assert!(error.len() < 400, "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(5),
        cases: 4096,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Valid files with a few bytes that are not.
    #[test]
    fn almost_valid(
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"{}[]\":,0\\eu\xff\n"[..])), 1..6),
        end in any::<prop::sample::Index>(),
    ) {
        let mut text = with(
            r#""failure-policy": "Fail", "runtime-hooks": ["PreStartContainer"], "order": 1,
               "timeout": "1s", "failure-policies": {"PreStartContainer": "Ignore"},
               "required": false"#,
        ).into_bytes();
        for (at, byte) in edits {
            let at = at.index(text.len());
            text[at] = byte;
        }
        hook_server_file(&text);
        hook_server_file(&text[..end.index(text.len())]);
    }
}
