//! Logging of a whole process: each case runs in its own process.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::process::{Command, Output};

use wharf_cli::{FlagSet, LogError, LoggingFlags};

const ARGS: &str = "WHARF_TEST_LOG_ARGS";

/// Runs in a child process: logs with the flags in its environment.
#[test]
fn child() {
    let Ok(args) = std::env::var(ARGS) else { return };
    let mut flags = FlagSet::new("child", "Logs two lines.");
    let logging = LoggingFlags::register(&mut flags);
    let parsed = flags.parse(args.split_whitespace()).unwrap();
    let guard = logging.init(&parsed).unwrap();
    tracing::info!(driver = "d", "An info");
    tracing::error!("An error");
    tracing::info!("Buffered to the end");
    assert!(matches!(logging.init(&parsed), Err(LogError::AlreadySet)));
    drop(guard);
}

fn run(args: &str) -> (String, String) {
    let Output { status, stdout, stderr } = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(ARGS, args)
        .output()
        .unwrap();
    assert!(status.success(), "{status}");
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn all_goes_to_stderr() {
    let (stdout, stderr) = run("--logtostderr");
    assert!(!stdout.contains("An info"), "{stdout}");
    let lines: Vec<&str> = stderr.lines().collect();
    let [warning, info, error, last] = lines[..] else { panic!("{stderr}") };
    assert!(warning.starts_with('W') && warning.contains("--logtostderr has been deprecated"));
    assert!(info.starts_with('I') && info.ends_with(r#"] "An info" driver="d""#), "{info}");
    assert!(error.starts_with('E') && error.ends_with(r#"] "An error""#), "{error}");
    assert!(last.ends_with(r#"] "Buffered to the end""#), "{last}");
}

#[test]
fn split_streams_part_errors_from_the_rest() {
    let (stdout, stderr) =
        run("--logging-format=json --log-json-split-stream --log-json-info-buffer-size=1Mi \
         --log-flush-frequency=1h");
    assert!(stdout.contains(r#""msg":"An info","v":0,"driver":"d"}"#), "{stdout}");
    assert!(stdout.contains(r#""msg":"Buffered to the end","v":0}"#), "{stdout}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.ends_with("\"msg\":\"An error\"}\n"), "{stderr}");
}
