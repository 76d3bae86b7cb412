use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

use jiff::Timestamp;
use tracing::{Subscriber, debug, error, info, info_span, trace, warn};

use super::*;
use crate::FlagSet;

/// Collects the output of a log.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// 2026-11-15 22:19:09.123456 UTC.
fn time() -> Timestamp {
    Timestamp::new(1_794_781_149, 123_456_789).unwrap()
}

fn subscriber(options: &LogOptions, sink: &Sink) -> impl Subscriber + Send + Sync + use<> {
    let layer = options.layer_for(sink.clone()).frozen_at(time(), 12345);
    Registry::default().with(layer)
}

fn logged(options: &LogOptions, log: impl FnOnce()) -> String {
    let sink = Sink::default();
    tracing::subscriber::with_default(subscriber(options, &sink), log);
    sink.text()
}

fn headless() -> LogOptions {
    LogOptions { skip_headers: true, ..LogOptions::default() }
}

fn json() -> LogOptions {
    LogOptions { format: LogFormat::Json, ..LogOptions::default() }
}

#[test]
fn text_lines_are_klogs() {
    let first = line!() + 2;
    let text = logged(&LogOptions { verbosity: 6, ..LogOptions::default() }, || {
        info!(driver = "hostpath.csi.k8s.io", attempts = 3, "Registered");
        warn!(ratio = 0.5, late = true, "Slow \"driver\"");
        error!(error = "no such file", path = "/a b", "Cannot listen");
        debug!("four");
        trace!("six");
    });
    let header = |severity, offset| {
        format!("{severity}1115 22:19:09.123456   12345 tests.rs:{}] ", first + offset)
    };
    let expected = [
        header('I', 0) + r#""Registered" driver="hostpath.csi.k8s.io" attempts=3"#,
        header('W', 1) + r#""Slow \"driver\"" ratio=0.5 late=true"#,
        header('E', 2) + r#""Cannot listen" err="no such file" path="/a b""#,
        header('I', 3) + r#""four""#,
        header('I', 4) + r#""six""#,
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn text_values_are_quoted_as_klog_does() {
    let (list, duration) = (vec!["a", "b c"], Duration::from_secs(1));
    let text = logged(&headless(), || {
        info!(lines = "a\nb", "m");
        info!(lines = "a\nb\n", next = 1, "m");
        info!(?list, ?duration, debug = ?"x \"y\"", shown = %"x \"y\"", "m");
        info!(forged = %"[\nI1115 fake]", empty = "", pair = %"\"a\" or \"b\"", "m\nn");
    });
    assert_eq!(
        text,
        "\"m\" lines=<\n\ta\n\tb\n >\n\
         \"m\" lines=<\n\ta\n\tb\n > next=1\n\
         \"m\" list=[\"a\",\"b c\"] duration=\"1s\" debug=\"x \\\"y\\\"\" shown=\"x \\\"y\\\"\"\n\
         \"m\\nn\" forged=<\n\t[\n\tI1115 fake]\n > empty=\"\" pair=\"\\\"a\\\" or \\\"b\\\"\"\n"
    );
}

/// A driver's error text may contain anything.
#[test]
fn no_text_acts_on_a_terminal() {
    let hostile = "a \x1b[2J\u{9b}31m\u{7f}\u{202e}\u{2028}z";
    let list = vec![hostile];
    let log = || {
        info!(one = hostile, lines = %format!("first\n{hostile}\r\nlast"), ?list, "m {hostile}");
        // A text that looks like the output of `Debug`.
        info!(fake = %format!("\"{hostile}\""), "m");
        error!(error = %format!("first\n{hostile}"), "m");
    };
    for options in [headless(), json()] {
        let text = logged(&options, log);
        let acts = |c: char| c != '\n' && c != '\t' && c != ' ' && c.escape_debug().len() > 1;
        let found: Vec<char> =
            text.chars().filter(|c| acts(*c) && !['"', '\\'].contains(c)).collect();
        assert!(found.is_empty(), "{found:?} in {text}");
    }
    let read: serde_json::Value =
        serde_json::from_str(logged(&json(), log).lines().next().unwrap()).unwrap();
    assert_eq!(read["one"], hostile);
}

#[test]
fn folders_can_be_shown() {
    let text = logged(&LogOptions { add_dir_header: true, ..LogOptions::default() }, || info!("m"));
    assert!(text.contains(" logging/tests.rs:"), "{text}");
}

#[test]
fn json_lines_are_component_bases() {
    let first = line!() + 2;
    let text = logged(&LogOptions { verbosity: 4, ..json() }, || {
        info!(driver = "a\"b", attempts = 3, ratio = 0.5, late = true, "Registered");
        warn!(debug = ?"x\ty", list = ?["a"], "Slow");
        error!(error = "no such file", path = "/a", "Cannot listen");
        debug!(nan = f64::NAN, "four");
    });
    let head = |offset, message| {
        format!(
            r#"{{"ts":1794781149123.4568,"caller":"logging/tests.rs:{}","msg":"{message}","#,
            first + offset
        )
    };
    let expected = [
        head(0, "Registered") + r#""v":0,"driver":"a\"b","attempts":3,"ratio":0.5,"late":true}"#,
        head(1, "Slow") + r#""v":0,"level":"warning","debug":"x\ty","list":["a"]}"#,
        head(2, "Cannot listen") + r#""path":"/a","err":"no such file"}"#,
        head(3, "four") + r#""v":4,"nan":"NaN"}"#,
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn spans_lend_their_fields() {
    let text = logged(&headless(), || {
        let outer = info_span!("volume", volume = "v1", node = tracing::field::Empty).entered();
        outer.record("node", "n1");
        let _inner = info_span!("call", method = "NodeStage", volume = "v2").entered();
        info!(method = "NodePublish", "Calling");
    });
    assert_eq!(text, "\"Calling\" volume=\"v2\" node=\"n1\" method=\"NodePublish\"\n");
}

#[test]
fn errors_show_their_causes() {
    let cause = io::Error::other("disk on fire");
    let problem = LogError::Flusher(cause);
    let text = logged(&headless(), || {
        error!(error = &problem as &dyn std::error::Error, "Stopped");
    });
    let expected = "\"Stopped\" err=\"cannot start the thread that --log-flush-frequency needs: \
                    disk on fire\"\n";
    assert_eq!(text, expected);
}

#[test]
fn verbosity_opens_levels() {
    for (verbosity, vmodule, expected) in [
        (0, "", "we"),
        (3, "", "we"),
        (4, "", "wed"),
        (5, "", "wedp"),
        (6, "", "wedpt"),
        (8, "", "wedptl"),
        (10, "", "wedptl"),
        (0, "tests=4", "wed"),
        (0, "test?=6", "wedpt"),
        (4, "other=9", "wed"),
        (0, "other=9", "we"),
    ] {
        let vmodule: VModule = vmodule.parse().unwrap();
        let options = LogOptions { verbosity, vmodule, ..headless() };
        let text = logged(&options, || {
            warn!("w");
            error!("e");
            debug!("d");
            debug!(target: "wharf_csi::payloads", "p");
            trace!("t");
            debug!(target: "h2::codec", "l");
            trace!(target: "h2::codec", "secret");
        });
        let shown: String = text.chars().filter(char::is_ascii_alphabetic).collect();
        assert_eq!(shown, expected, "{options:?}");
    }
}

#[test]
fn split_streams_buffer_all_but_errors() {
    let (errors, infos) = (Sink::default(), Sink::default());
    let output = Output::split(Box::new(errors.clone()), Box::new(infos.clone()), 8);
    output.write(false, b"one\n");
    output.write(false, b"two\n");
    assert_eq!(infos.text(), "", "both fit");
    output.write(false, b"3\n");
    assert_eq!(infos.text(), "one\ntwo\n", "the third does not");
    output.write(true, b"boom\n");
    assert_eq!((infos.text().as_str(), errors.text().as_str()), ("one\ntwo\n3\n", "boom\n"));
    output.write(false, b"longer than all\n");
    assert!(infos.text().ends_with("longer than all\n"));
    output.write(false, b"last\n");
    output.close();
    assert!(infos.text().ends_with("last\n"));
    output.write(false, b"late\n");
    assert!(infos.text().ends_with("late\n"), "nothing waits once closed");
}

/// Reports each write.
struct Notice(Sender<Vec<u8>>);

impl Write for Notice {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn buffered() -> (Arc<Output>, Receiver<Vec<u8>>) {
    let (sender, written) = channel();
    let notice = Box::new(Notice(sender));
    (Arc::new(Output::split(Box::new(io::sink()), notice, 1024)), written)
}

#[test]
fn buffered_lines_are_written_in_time() {
    let (output, written) = buffered();
    let guard = LogGuard::new(Arc::clone(&output), Duration::from_millis(1)).unwrap();
    for line in [b"one\n", b"two\n"] {
        output.write(false, line);
        assert_eq!(written.recv_timeout(Duration::from_secs(10)).unwrap(), line);
    }
    drop(guard);
}

#[test]
fn the_guard_writes_what_is_left() {
    let (output, written) = buffered();
    let guard = LogGuard::new(Arc::clone(&output), Duration::from_secs(3600)).unwrap();
    output.write(false, b"last\n");
    assert!(written.try_recv().is_err());
    drop(guard);
    assert_eq!(written.try_recv().unwrap(), b"last\n");
}

#[test]
fn flags_become_options() {
    let mut flags = FlagSet::new("test", "");
    let logging = LoggingFlags::register(&mut flags);
    let parsed = flags
        .parse([
            "-v=5",
            "-vmodule=a=1",
            "-logging-format=json",
            "-log-json-split-stream",
            "-log-json-info-buffer-size=64Ki",
            "-log-flush-frequency=1s",
        ])
        .unwrap();
    let options = logging.options(&parsed);
    assert_eq!((options.format, options.verbosity), (LogFormat::Json, 5));
    assert_eq!(options.vmodule, "a=1".parse().unwrap());
    assert_eq!((options.split_stream, options.info_buffer), (true, 65536));
    assert_eq!(options.flush_every, Duration::from_secs(1));
    assert!(parsed.warnings().is_empty() && logging.warnings(&parsed).is_empty());
}

#[test]
fn every_flag_without_effect_warns() {
    let mut flags = FlagSet::new("test", "");
    let logging = LoggingFlags::register(&mut flags);
    for (args, expected) in [
        (&["--logtostderr=true", "--log_dir=/tmp", "--stderrthreshold=INFO"][..], 3),
        (&["--alsologtostderr", "--log_file=a", "--log_file_max_size=1", "--one_output"], 4),
        (
            &["--log_backtrace_at=a:1", "--skip_log_headers", "--skip_headers", "--add_dir_header"],
            4,
        ),
        (&["--log-json-split-stream", "--log-json-info-buffer-size=1"], 2),
        (&["--log-text-info-buffer-size=1"], 1),
        (&["--log-flush-frequency=1s"], 1),
        (&["--logging-format=json", "--log-text-split-stream", "--skip_headers"], 3),
        (
            &[
                "--log-text-split-stream",
                "--log-text-info-buffer-size=1",
                "--log-flush-frequency=1s",
            ],
            0,
        ),
        (&["--log-flush-frequency=5s", "--log-json-info-buffer-size=0", "-v=4"], 0),
    ] {
        let parsed = flags.parse(args.iter().copied()).unwrap();
        let mut warnings = parsed.warnings();
        warnings.extend(logging.warnings(&parsed));
        assert_eq!(warnings.len(), expected, "{args:?}: {warnings:?}");
    }
}

#[test]
fn bad_values_are_named() {
    let mut flags = FlagSet::new("test", "");
    LoggingFlags::register(&mut flags);
    for (word, expected) in [
        (
            "-v=x",
            r#"invalid value "x" for flag -v: strconv.ParseUint: parsing "x": invalid syntax"#,
        ),
        (
            "-v=4294967296",
            "invalid value \"4294967296\" for flag -v: \
             strconv.ParseUint: parsing \"4294967296\": value out of range",
        ),
        (
            "-logging-format=xml",
            "invalid value \"xml\" for flag -logging-format: \
             unsupported log format, expected text or json",
        ),
        (
            "-vmodule=x",
            r#"invalid value "x" for flag -vmodule: "x" does not have the pattern=N format"#,
        ),
        (
            "-log-text-info-buffer-size=x",
            "invalid value \"x\" for flag -log-text-info-buffer-size: \
             expected a number of bytes such as 512, 64Ki or 1.5M",
        ),
    ] {
        let error = flags.parse([word]).unwrap_err().to_string();
        assert_eq!(error.lines().next(), Some(expected));
    }
}
