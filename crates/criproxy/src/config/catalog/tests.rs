use super::*;
use crate::HookPoint;

const GOOD: &[u8] =
    br#"{"remote-endpoint": "/run/a.sock", "runtime-hooks": ["PreCreateContainer"]}"#;
const REQUIRED: &[u8] = br#"{"remote-endpoint": "/run/a.sock", "required": true, "failure-policy":
    "Fail", "runtime-hooks": ["PreCreateContainer", "PostStopContainer"]}"#;

fn files<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> BTreeMap<String, Reading> {
    let reading = |text: &[u8]| Reading { text: text.to_owned(), fault: None };
    files.into_iter().map(|(name, text)| (name.to_owned(), reading(text))).collect()
}

fn names(catalog: &Catalog) -> Vec<String> {
    catalog.servers().iter().map(|server| server.name.clone()).collect()
}

fn refuses(catalog: &Catalog) -> Vec<HookPoint> {
    let servers = catalog.servers();
    HookPoint::ALL.into_iter().filter(|point| servers.barred(*point).is_some()).collect()
}

/// A catalog that requires these servers, and knows the versions of before a restart.
fn requiring(required: &[&str], kept: &[(&str, &[u8])]) -> Catalog {
    let kept = kept.iter().map(|(name, text)| ((*name).to_owned(), text.to_vec()));
    Catalog::new(required.iter().map(|name| (*name).to_owned()).collect(), kept.collect())
}

#[test]
fn a_bad_file_keeps_what_it_said_before() {
    let (mut catalog, now) = (Catalog::default(), Instant::now());
    let news = catalog.update(files([("a.json", GOOD)]), now);
    assert!(matches!(&news[..], [News::Loaded { .. }]), "{news:?}");
    let before = catalog.servers();
    for bad in [&b"{"[..], b"[]", b"{}", b"\xff"] {
        let news = catalog.update(files([("a.json", bad)]), now);
        let kept = matches!(&news[..], [News::Refused { effect: Effect::AskedAsBefore, .. }]);
        assert!(kept, "{news:?}");
        assert_eq!(catalog.servers(), before);
        assert_eq!(catalog.update(files([("a.json", bad)]), now), [], "told once");
    }
    assert_eq!(catalog.counts(), [("loaded", 0), ("empty", 0), ("refused", 1)]);
    assert_eq!(catalog.update(BTreeMap::new(), now), []);
    let removed = [News::Removed { name: "a.json".into() }];
    assert_eq!(catalog.update(BTreeMap::new(), now + GRACE), removed);
    assert_eq!(catalog.servers(), Servers::default());
}

#[test]
fn a_deleted_file_has_a_second_to_come_back() {
    let (mut catalog, now) = (Catalog::default(), Instant::now());
    catalog.update(files([("a.json", GOOD)]), now);
    let before = catalog.servers();
    for _ in 0..2 {
        catalog.update(BTreeMap::new(), now);
        assert_eq!(
            (catalog.next_deadline(), catalog.servers()),
            (Some(now + GRACE), before.clone())
        );
        assert_eq!(catalog.update(files([("a.json", GOOD)]), now + GRACE / 2), []);
        assert_eq!((catalog.next_deadline(), catalog.servers()), (None, before.clone()));
    }
    // Without a folder no time passes.
    catalog.update(BTreeMap::new(), now);
    catalog.lose_folder();
    assert_eq!((catalog.next_deadline(), catalog.servers()), (None, before.clone()));
    assert_eq!(catalog.update(BTreeMap::new(), now + GRACE * 2), []);
    assert_eq!(catalog.servers(), before);
}

#[test]
fn a_required_file_that_is_deleted_refuses_the_calls_that_its_server_hooks() {
    for (required, text) in [(&[][..], REQUIRED), (&["a"], GOOD), (&["a.json"], GOOD)] {
        let (mut catalog, now) = (requiring(required, &[]), Instant::now());
        catalog.update(files([("a.json", text)]), now);
        assert_eq!((names(&catalog), refuses(&catalog)), (vec!["a.json".to_owned()], vec![]));
        catalog.update(BTreeMap::new(), now);
        assert_eq!(refuses(&catalog), [], "it may come back");
        let news = catalog.update(BTreeMap::new(), now + GRACE);
        assert_eq!(news, [News::Missing { name: "a.json".into() }]);
        assert_eq!(names(&catalog), [""; 0]);
        assert_eq!(refuses(&catalog), [HookPoint::PreCreateContainer]);
        assert_eq!(catalog.update(BTreeMap::new(), now + GRACE * 2), [], "told once");
        assert_eq!(catalog.good_versions().len(), 1, "for the next restart");
        let news = catalog.update(files([("a.json", text)]), now);
        assert!(matches!(&news[..], [News::Loaded { .. }]), "{news:?}");
        assert_eq!((names(&catalog), refuses(&catalog)), (vec!["a.json".to_owned()], vec![]));
    }
}

#[test]
fn a_version_from_before_a_restart_counts_until_there_is_a_better_one() {
    let now = Instant::now();
    let kept: &[(&str, &[u8])] = &[("a.json", GOOD), ("b.json", REQUIRED), ("bad.json", b"{")];
    for bad in [&b"{"[..], b""] {
        let mut catalog = requiring(&[], kept);
        catalog.update(files([("a.json", bad), ("b.json", GOOD)]), now);
        assert_eq!(names(&catalog), ["a.json", "b.json"]);
        let b = catalog.servers().iter().last().unwrap().clone();
        assert!(!b.required, "the file counts");
    }
    let mut catalog = requiring(&[], kept);
    catalog.lose_folder();
    assert_eq!(names(&catalog), ["a.json", "b.json"]);
    catalog.update(BTreeMap::new(), now);
    catalog.update(BTreeMap::new(), now + GRACE);
    assert_eq!(refuses(&catalog), [HookPoint::PreCreateContainer]);
    let kept: Vec<_> = catalog.good_versions().into_keys().collect();
    assert_eq!(kept, ["b.json"]);
}

/// A proxy that starts does not know since when the file is missing, so it refuses calls without
/// waiting for a second.
#[test]
fn a_required_server_without_a_file_refuses_calls_from_the_start_on() {
    let now = Instant::now();
    for (required, kept) in [(&[][..], REQUIRED), (&["b"], GOOD)] {
        let mut catalog = requiring(required, &[("b.json", kept)]);
        let news = catalog.update(BTreeMap::new(), now);
        assert!(matches!(&news[..], [News::Missing { .. }]), "{news:?}");
        assert_eq!(refuses(&catalog), [HookPoint::PreCreateContainer]);
        assert!(names(&catalog).is_empty(), "asked although nobody wants it");
        catalog.update(files([("b.json", GOOD)]), now);
        assert_eq!(refuses(&catalog), []);
        // An editor may delete a file that was there and write it again.
        catalog.update(BTreeMap::new(), now);
        assert_eq!(refuses(&catalog), []);
    }
}

#[test]
fn a_server_that_was_never_seen_refuses_all_calls_before_which_it_could_be_asked() {
    let (mut catalog, now) = (requiring(&["a"], &[]), Instant::now());
    let all = [
        HookPoint::PreRunPodSandbox,
        HookPoint::PreCreateContainer,
        HookPoint::PreStartContainer,
        HookPoint::PreUpdateContainerResources,
    ];
    assert_eq!(refuses(&catalog), all);
    for bad in [&b"{"[..], b"", br#"{"runtime-hooks": ["PreStartContainer"]}"#] {
        catalog.update(files([("a.json", bad)]), now);
        assert_eq!(refuses(&catalog), all);
    }
    catalog.update(files([("a.json", GOOD)]), now);
    assert_eq!(refuses(&catalog), []);
}

#[test]
fn a_server_that_is_forgotten_is_required_again_once_it_is_back() {
    let (mut catalog, now) = (requiring(&["a"], &[]), Instant::now());
    catalog.forget("b").unwrap_err();
    catalog.forget("a").unwrap();
    assert_eq!(refuses(&catalog), []);
    let [row] = &catalog.status()[..] else { panic!("{:?}", catalog.status()) };
    assert_eq!((row.state, row.effect), (FileState::Forgotten, Effect::NotAsked));
    catalog.update(files([("a.json", GOOD)]), now);
    catalog.forget("a").unwrap_err();
    catalog.update(BTreeMap::new(), now);
    catalog.update(BTreeMap::new(), now + GRACE);
    assert_eq!(refuses(&catalog), [HookPoint::PreCreateContainer]);
    catalog.forget("a.json").unwrap();
    assert_eq!((refuses(&catalog), catalog.good_versions().len()), (vec![], 0));
}

/// A file that is made and then written, as koordlet does, never stands for nothing.
#[test]
fn an_empty_file_waits_for_its_content() {
    let (mut catalog, now) = (Catalog::default(), Instant::now());
    let empty = [News::Empty { name: "a.json".into() }];
    assert_eq!(catalog.update(files([("a.json", &b""[..])]), now), empty);
    assert_eq!(catalog.counts(), [("loaded", 0), ("empty", 1), ("refused", 0)]);
    catalog.update(files([("a.json", GOOD)]), now);
    assert_eq!(names(&catalog), ["a.json"]);
    catalog.update(files([("a.json", &b" \n"[..])]), now);
    assert_eq!(names(&catalog), ["a.json"], "the last good one");
}

#[test]
fn a_bad_file_does_nothing_to_others() {
    let mut catalog = Catalog::default();
    let news = catalog.update(files([("a.json", &b"{"[..]), ("b.json", GOOD)]), Instant::now());
    let told =
        matches!(&news[..], [News::Refused { effect: Effect::NotAsked, .. }, News::Loaded { .. }]);
    assert!(told, "{news:?}");
    assert_eq!(names(&catalog), ["b.json"]);
    assert_eq!(catalog.counts(), [("loaded", 1), ("empty", 0), ("refused", 1)]);
}

#[test]
fn order_comes_before_name() {
    let last = br#"{"remote-endpoint": "/a", "order": 1}"#;
    let first = br#"{"remote-endpoint": "/a", "order": -1}"#;
    let mut catalog = Catalog::default();
    let files =
        files([("a.json", &last[..]), ("b.json", GOOD), ("c.json", GOOD), ("d.json", first)]);
    catalog.update(files, Instant::now());
    assert_eq!(names(&catalog), ["d.json", "b.json", "c.json", "a.json"]);
}

#[test]
fn a_version_of_another_process_counts_unless_the_file_is_good() {
    let (mut catalog, now) = (Catalog::default(), Instant::now());
    catalog.update(files([("a.json", GOOD), ("b.json", b"{"), ("c.json", b"")]), now);
    for file in ["a.json", "b.json", "c.json", "d.json"] {
        catalog.adopt(file.to_owned(), REQUIRED.to_owned(), now).unwrap();
    }
    assert_eq!(names(&catalog), ["a.json", "b.json", "c.json"]);
    let required = catalog.servers().iter().map(|server| server.required).collect::<Vec<_>>();
    assert_eq!(required, [false, true, true]);
    assert_eq!(refuses(&catalog), [HookPoint::PreCreateContainer], "d.json is missing");
    catalog.adopt("e.json".to_owned(), GOOD.to_owned(), now).unwrap();
    assert_eq!(names(&catalog), ["a.json", "b.json", "c.json", "e.json"]);
    catalog.update(files([("a.json", GOOD), ("b.json", b"{"), ("c.json", b"")]), now + GRACE);
    assert_eq!(names(&catalog), ["a.json", "b.json", "c.json"], "it was deleted");
    assert!(catalog.adopt("b.json".to_owned(), b"{".to_vec(), now).is_err());
}
