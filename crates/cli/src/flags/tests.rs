use std::{collections::BTreeMap, ffi::OsString, os::unix::ffi::OsStringExt, time::Duration};

use super::*;

struct Declared {
    set: FlagSet,
    address: Flag<String>,
    timeout: Flag<Duration>,
    port: Flag<i64>,
    burst: Flag<u64>,
    qps: Flag<f64>,
    elect: Flag<bool>,
    quick: Flag<bool>,
    verbosity: Flag<i64>,
    labels: Flag<BTreeMap<String, String>>,
    controllers: Flag<Vec<String>>,
}

fn declare(dialect: Dialect) -> Declared {
    let mut set = FlagSet::new("csi-test", "Tests flags.").dialect(dialect);
    Declared {
        address: set.string("csi-address", "/run/csi/socket", "Path of the driver's socket."),
        timeout: set.duration("timeout", Duration::from_secs(1), "How long a call may take."),
        port: set.int("health-port", 0, "Port."),
        burst: set.uint("burst", 10, "Burst."),
        qps: set.float("qps", 5.0, "Queries per second."),
        elect: set.bool("leader-election", false, "Elect."),
        quick: set.bool("q", false, "Be quick."),
        verbosity: set.int("v", 0, "Verbosity."),
        labels: set.string_map("labels", BTreeMap::from([("a".into(), "1".into())]), "Labels."),
        controllers: set.string_list("controllers", vec!["all".into()], "Controllers."),
        set,
    }
}

fn message(dialect: Dialect, args: &[&str]) -> String {
    match declare(dialect).set.parse(args.iter().copied()) {
        Err(FlagError::Usage { message, .. }) => message,
        other => panic!("{args:?}: {other:?}"),
    }
}

#[test]
fn go_spellings() {
    let d = declare(Dialect::Go);
    for args in [
        &["-csi-address=/a", "-timeout=2s"][..],
        &["--csi-address=/a", "--timeout=2s"],
        &["-csi-address", "/a", "--timeout", "2s"],
        &["--csi-address", "/b", "-csi-address=/a", "-timeout=1h", "-timeout=2s"],
    ] {
        let parsed = d.set.parse(args.iter().copied()).unwrap();
        assert_eq!(parsed.get(&d.address), "/a", "{args:?}");
        assert_eq!(*parsed.get(&d.timeout), Duration::from_secs(2), "{args:?}");
        assert!(parsed.is_set(&d.address) && !parsed.is_set(&d.port), "{args:?}");
    }
}

#[test]
fn defaults_stay_when_nothing_is_given() {
    let d = declare(Dialect::Go);
    let parsed = d.set.parse::<[&str; 0]>([]).unwrap();
    assert_eq!(parsed.get(&d.address), "/run/csi/socket");
    assert_eq!((*parsed.get(&d.port), *parsed.get(&d.burst)), (0, 10));
    assert_eq!(*parsed.get(&d.qps), 5.0);
    assert_eq!(parsed.get(&d.controllers), &["all"]);
    assert_eq!(parsed.get(&d.labels).len(), 1);
    assert!(!parsed.is_set(&d.address) && !parsed.is_changed(&d.address));
}

#[test]
fn values_may_be_empty_or_look_like_flags() {
    let d = declare(Dialect::Go);
    let parsed = d.set.parse(["-csi-address=", "-health-port", "-1"]).unwrap();
    assert_eq!((parsed.get(&d.address).as_str(), *parsed.get(&d.port)), ("", -1));
    let parsed = d.set.parse(["-csi-address=a=b"]).unwrap();
    assert_eq!(parsed.get(&d.address), "a=b");
}

#[test]
fn switches_take_a_value_only_after_an_equals_sign() {
    for dialect in [Dialect::Go, Dialect::Pflag] {
        let d = declare(dialect);
        for (args, expected) in [
            (&["--leader-election"][..], true),
            (&["--leader-election=T"], true),
            (&["--leader-election=0"], false),
            (&["--leader-election", "--leader-election=FALSE"], false),
        ] {
            let parsed = d.set.parse(args.iter().copied()).unwrap();
            assert_eq!(*parsed.get(&d.elect), expected, "{args:?}");
        }
        let parsed = d.set.parse(["--leader-election", "false"]).unwrap();
        assert!(*parsed.get(&d.elect));
        assert_eq!(parsed.args(), ["false"]);
    }
}

#[test]
fn go_stops_at_the_first_word() {
    let d = declare(Dialect::Go);
    for (args, rest) in [
        (&["-v=1", "word", "-v=2"][..], &["word", "-v=2"][..]),
        (&["-v=1", "--", "-v=2"], &["-v=2"]),
        (&["-v=1", "-", "-v=2"], &["-", "-v=2"]),
        (&["-v=1", "", "-v=2"], &["", "-v=2"]),
    ] {
        let parsed = d.set.parse(args.iter().copied()).unwrap();
        assert_eq!((*parsed.get(&d.verbosity), parsed.args()), (1, rest.map_owned().as_slice()));
    }
}

#[test]
fn pflag_walks_past_words() {
    let d = declare(Dialect::Pflag);
    for (args, level, rest) in [
        (&["a", "--v=2", "b", "-v", "3"][..], 3, &["a", "b"][..]),
        (&["-v=4"], 4, &[]),
        (&["-v5"], 5, &[]),
        (&["-qv=6"], 6, &[]),
        (&["-q", "-v", "7", "-"], 7, &["-"]),
        (&["-v8", "--", "-v9"], 8, &["-v9"]),
    ] {
        let parsed = d.set.parse(args.iter().copied()).unwrap();
        let expected = (level, rest.map_owned());
        assert_eq!((*parsed.get(&d.verbosity), parsed.args().to_vec()), expected, "{args:?}");
    }
    assert!(*d.set.parse(["-qv1"]).unwrap().get(&d.quick));
}

#[test]
fn collections_drop_their_default_and_then_add_up() {
    let d = declare(Dialect::Go);
    let args = ["-labels=b:2,c=3", "-labels=x/y:4", "-controllers=a,b", "-controllers", "c"];
    let parsed = d.set.parse(args).unwrap();
    let labels: Vec<_> = parsed.get(&d.labels).iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(labels, ["b=2", "c=3", "x/y=4"]);
    assert_eq!(parsed.get(&d.controllers), &["a", "b", "c"]);
}

#[test]
fn mistakes_in_the_words_of_go() {
    for (args, expected) in [
        (&["-timeout=abc"][..], r#"invalid value "abc" for flag -timeout: parse error"#),
        (&["--timeout", "5"], r#"invalid value "5" for flag -timeout: parse error"#),
        (
            &["-timeout=-1s"],
            r#"invalid value "-1s" for flag -timeout: a duration must not be negative"#,
        ),
        (&["-health-port=x\n"], r#"invalid value "x\n" for flag -health-port: parse error"#),
        (
            &["-health-port=9223372036854775808"],
            r#"invalid value "9223372036854775808" for flag -health-port: value out of range"#,
        ),
        (&["-burst=-1"], r#"invalid value "-1" for flag -burst: parse error"#),
        (&["-qps=many"], r#"invalid value "many" for flag -qps: parse error"#),
        (
            &["-leader-election=yes"],
            r#"invalid boolean value "yes" for -leader-election: parse error"#,
        ),
        (
            &["-labels=a"],
            r#"invalid value "a" for flag -labels: malformed pair "a", expect key=value or key:value"#,
        ),
        (&["-timeout"], "flag needs an argument: -timeout"),
        (&["-nonsense"], "flag provided but not defined: -nonsense"),
        (&["--nonsense=1"], "flag provided but not defined: -nonsense"),
        (&["---v=1"], "bad flag syntax: ---v=1"),
        (&["-=1"], "bad flag syntax: -=1"),
        (
            &["-csi-adress=/a"],
            "flag provided but not defined: -csi-adress\nDid you mean --csi-address?",
        ),
    ] {
        assert_eq!(message(Dialect::Go, args), expected);
    }
}

#[test]
fn mistakes_in_the_words_of_pflag() {
    for (args, expected) in [
        (
            &["--timeout=abc"][..],
            r#"invalid argument "abc" for "--timeout" flag: time: invalid duration "abc""#,
        ),
        (
            &["--timeout=5"],
            r#"invalid argument "5" for "--timeout" flag: time: missing unit in duration "5""#,
        ),
        (
            &["-vx"],
            r#"invalid argument "x" for "-v, --v" flag: strconv.ParseInt: parsing "x": invalid syntax"#,
        ),
        (
            &["--leader-election=yes"],
            r#"invalid argument "yes" for "--leader-election" flag: strconv.ParseBool: parsing "yes": invalid syntax"#,
        ),
        (&["--timeout"], "flag needs an argument: --timeout"),
        (&["-qv"], "flag needs an argument: 'v' in -v"),
        (&["--nonsense=1"], "unknown flag: --nonsense"),
        (&["-qx"], "unknown shorthand flag: 'x' in -x"),
        (
            &["-csi-address=/a"],
            "unknown shorthand flag: 'c' in -csi-address=/a\nDid you mean --csi-address?",
        ),
        (&["---v=1"], "bad flag syntax: ---v=1"),
        (&["--=1"], "bad flag syntax: --=1"),
    ] {
        assert_eq!(message(Dialect::Pflag, args), expected);
    }
}

#[test]
fn a_mistake_shows_the_help_of_its_flag_only() {
    let error = declare(Dialect::Go).set.parse(["-timeout=abc"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid value \"abc\" for flag -timeout: parse error\n  \
         --timeout duration\n      How long a call may take. (default 1s)\n\
         Run `csi-test --help` for all flags."
    );
    assert_eq!(error.exit_code(), 2);
}

#[test]
fn words_that_are_not_unicode_are_refused() {
    let word = OsString::from_vec(b"-v=\xff".to_vec());
    let error = declare(Dialect::Go).set.parse([word]).unwrap_err().to_string();
    assert!(error.starts_with("argument is not valid UTF-8: -v="), "{error}");
}

#[test]
fn help_is_asked_for_in_many_ways() {
    for (dialect, word) in [
        (Dialect::Go, "-h"),
        (Dialect::Go, "--h"),
        (Dialect::Go, "-help"),
        (Dialect::Go, "--help"),
        (Dialect::Pflag, "-h"),
        (Dialect::Pflag, "--help"),
    ] {
        let error = declare(dialect).set.parse(["-v=1", word, "-nonsense"]).unwrap_err();
        assert!(matches!(&error, FlagError::Help(text) if text.contains("--timeout")), "{word}");
        assert_eq!(error.exit_code(), 0);
    }
}

#[test]
fn help_is_sorted_wrapped_and_tells_defaults() {
    let mut set = FlagSet::new("csi-test", "Tests help.");
    set.bool("version", false, "Print the version and exit.");
    set.string("csi-address", "/run/csi/socket", "word ".repeat(30));
    set.int("health-port", 0, "Port of the health check.");
    set.deprecate("health-port", "use --http-endpoint");
    let full = ["word"; 19].join(" ");
    let rest = ["word"; 11].join(" ");
    assert_eq!(
        set.help(),
        format!(
            "Tests help.\n\nUsage: csi-test [flags]\n\nFlags:\n  --csi-address string\n      {full}\n      \
             {rest} (default /run/csi/socket)\n  --version\n      Print the version and exit.\n\n\
             Deprecated flags, accepted with a warning:\n  --health-port int\n      \
             Port of the health check. Deprecated: use --http-endpoint.\n\n\
             Flags may be written with one dash or two: -x=value, -x value. \
             Switches take a value only after =."
        )
    );
    assert!(set.help().lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn deprecated_flags_warn_once() {
    let mut d = declare(Dialect::Go);
    d.set.deprecate("health-port", "use --http-endpoint");
    let parsed = d.set.parse(["-health-port=1", "-health-port=2"]).unwrap();
    assert_eq!(*parsed.get(&d.port), 2);
    let expected = ["Flag --health-port has been deprecated, use --http-endpoint"];
    assert_eq!(parsed.warnings(), expected);
    assert!(d.set.parse(["-v=1"]).unwrap().warnings().is_empty());
}

#[test]
#[should_panic(expected = "flag redefined: v")]
fn a_name_is_declared_once() {
    declare(Dialect::Go).set.bool("v", false, "");
}

trait MapOwned {
    fn map_owned(&self) -> Vec<String>;
}

impl MapOwned for [&str] {
    fn map_owned(&self) -> Vec<String> {
        self.iter().map(|word| (*word).to_owned()).collect()
    }
}

#[test]
fn rules_see_the_whole_command_line() {
    let mut flags = FlagSet::new("test", "");
    flags.bool("here", false, "");
    flags.duration("delay", Duration::from_secs(1), "");
    flags.warn_when(|parsed| {
        let asked = parsed.shown("here").as_deref() == Some("true") && parsed.differs("delay");
        asked.then(|| "--delay has no effect".to_owned()).into_iter().collect()
    });
    let warnings = |args: &[&str]| flags.parse(args.iter().copied()).unwrap().warnings();
    assert_eq!(warnings(&["--delay=2s"]), [""; 0]);
    assert_eq!(warnings(&["--here", "--delay=1000ms"]), [""; 0]);
    assert_eq!(warnings(&["--here", "--delay=2s"]), ["--delay has no effect"]);
    let parsed = flags.parse(["--here"]).unwrap();
    assert!(parsed.shown("there").is_none() && !parsed.differs("there"));
    assert!(parsed.feature("Any").is_none());
}
