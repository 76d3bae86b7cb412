//! A folder of hook servers: what is in force, how soon, and what is refused.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, PermissionsExt, chown, symlink},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use prometheus_client::{encoding::text::encode, registry::Registry};
use tempfile::TempDir;
use tokio::sync::watch;
use wharf_criproxy::{
    Config, ConfigError, ConfigOptions, ConfigStatus, FolderError, HookMetrics, HookPoint, Servers,
    check,
};

use crate::fixture::soon;

struct Fixture {
    config: Config,
    servers: watch::Receiver<Arc<Servers>>,
    metrics: HookMetrics,
    folder: PathBuf,
    _place: TempDir,
}

impl Fixture {
    async fn start(files: &[(&str, &str)]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("etc/hookserver.d");
        for (name, text) in files {
            DirBuilder::new().recursive(true).mode(0o755).create(&folder).unwrap();
            write(&folder.join(name), text);
        }
        let metrics = HookMetrics::default();
        let config = Config::start(of(&folder), metrics.clone()).await.unwrap();
        Self { servers: config.servers(), config, metrics, folder, _place: place }
    }

    fn write(&self, name: &str, text: &str) {
        write(&self.folder.join(name), text);
    }

    fn names(&self) -> Vec<String> {
        self.servers.borrow().iter().map(|server| server.name.clone()).collect()
    }

    async fn endpoints(&mut self, expected: &[&str]) {
        let is = |servers: &Arc<Servers>| {
            servers.iter().map(|server| server.endpoint.to_str().unwrap()).eq(expected.to_vec())
        };
        soon(self.servers.wait_for(is)).await.unwrap();
    }

    async fn counts(&self, line: &str) {
        let mut registry = Registry::default();
        self.metrics.register(&mut registry);
        soon(async {
            loop {
                let mut text = String::new();
                encode(&mut text, &registry).unwrap();
                if text.lines().any(|found| found == line) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

fn of(folder: &Path) -> ConfigOptions {
    ConfigOptions { folder: folder.to_owned(), ..ConfigOptions::default() }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
}

fn server(endpoint: &str) -> String {
    format!(r#"{{"remote-endpoint": "{endpoint}", "runtime-hooks": ["PreCreateContainer"]}}"#)
}

#[tokio::test]
async fn what_is_there_is_in_force_at_once() {
    let (a, b) = (server("/a"), server("/b"));
    let fixture = Fixture::start(&[
        ("b.json", &b),
        ("a.json", &a),
        ("nodotjson", &a),
        (".hidden.json", &a),
        ("c.json.swp", &a),
        ("bad.json", "{"),
    ])
    .await;
    assert_eq!(fixture.names(), ["a.json", "b.json", "nodotjson"]);
    fixture.counts("wharf_proxy_hook_config_files{state=\"loaded\"} 3").await;
    fixture.counts("wharf_proxy_hook_config_files{state=\"refused\"} 1").await;
    fixture.config.stop().await;
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_made() {
    let mut fixture = Fixture::start(&[]).await;
    assert_eq!(fixture.names(), [""; 0]);
    assert_eq!(fs::metadata(&fixture.folder).unwrap().permissions().mode() & 0o777, 0o755);
    fixture.write("a.json", &server("/a"));
    fixture.endpoints(&["/a"]).await;
}

/// A rescan comes once a minute, which is more than is waited for here. How soon it is, the bench
/// says.
#[tokio::test]
async fn a_change_is_in_force_without_a_rescan() {
    let mut fixture = Fixture::start(&[]).await;
    for number in 0..9 {
        let endpoint = format!("/{number}");
        fixture.write("a.json", &server(&endpoint));
        fixture.endpoints(&[&endpoint]).await;
    }
}

#[tokio::test]
async fn changed_moved_over_and_removed() {
    let mut fixture = Fixture::start(&[("a.json", &server("/a"))]).await;
    fixture.write("a.json", &server("/b"));
    fixture.endpoints(&["/b"]).await;
    fixture.write(".a.json.tmp", &server("/c"));
    fs::rename(fixture.folder.join(".a.json.tmp"), fixture.folder.join("a.json")).unwrap();
    fixture.endpoints(&["/c"]).await;
    fs::remove_file(fixture.folder.join("a.json")).unwrap();
    fixture.endpoints(&[]).await;
}

/// koord-runtime-proxy goes by the time of a file's last change, and misses this.
#[tokio::test]
async fn an_old_time_hides_nothing() {
    let mut fixture = Fixture::start(&[("a.json", &server("/a"))]).await;
    let path = fixture.folder.join(".new");
    write(&path, &server("/b"));
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::rename(&path, fixture.folder.join("a.json")).unwrap();
    fixture.endpoints(&["/b"]).await;
}

/// Nothing is heard of a file behind a link that is written to, and its size and time tell nothing
/// either: the rescan reads.
#[tokio::test(start_paused = true)]
async fn what_was_not_heard_of_is_found_by_reading() {
    let place = tempfile::tempdir().unwrap();
    let (folder, real) = (place.path().join("hookserver.d"), place.path().join("real"));
    DirBuilder::new().mode(0o755).create(&folder).unwrap();
    write(&real, &server("/a"));
    symlink(&real, folder.join("a.json")).unwrap();
    let config = Config::start(of(&folder), HookMetrics::default()).await.unwrap();
    let modified = fs::metadata(&real).unwrap().modified().unwrap();
    write(&real, &server("/b"));
    fs::OpenOptions::new().append(true).open(&real).unwrap().set_modified(modified).unwrap();
    let mut servers = config.servers();
    let is_read = |servers: &Arc<Servers>| {
        servers.iter().next().is_some_and(|server| server.endpoint == Path::new("/b"))
    };
    let rescanned = tokio::time::timeout(Duration::from_secs(90), servers.wait_for(is_read));
    rescanned.await.expect("a rescan within a minute").unwrap();
}

#[tokio::test]
async fn a_bad_file_keeps_the_last_good_one() {
    let mut fixture = Fixture::start(&[("a.json", &server("/a"))]).await;
    for bad in ["", "{", "{}", &"x".repeat(65 << 10)] {
        fixture.write("a.json", bad);
        let state = if bad.is_empty() { "empty" } else { "refused" };
        fixture.counts(&format!("wharf_proxy_hook_config_files{{state=\"{state}\"}} 1")).await;
        // Whatever comes after it has seen it, too.
        fixture.write("b.json", &server("/b"));
        fixture.endpoints(&["/a", "/b"]).await;
        fs::remove_file(fixture.folder.join("b.json")).unwrap();
        fixture.endpoints(&["/a"]).await;
    }
    fixture.write("a.json", &server("/c"));
    fixture.endpoints(&["/c"]).await;
}

#[tokio::test]
async fn the_folder_may_go_and_come_back() {
    let mut fixture = Fixture::start(&[("a.json", &server("/a"))]).await;
    fs::remove_dir_all(&fixture.folder).unwrap();
    let is_told = || async { fixture.config.handle().status().problems().pop() };
    let problem = soon(async {
        loop {
            match is_told().await {
                Some(problem) => return problem,
                None => tokio::task::yield_now().await,
            }
        }
    });
    assert!(problem.await.contains("it is gone; what was in force stays"));
    assert_eq!(fixture.names(), ["a.json"]);
    DirBuilder::new().mode(0o755).create(&fixture.folder).unwrap();
    fixture.write("a.json", &server("/b"));
    fixture.endpoints(&["/b"]).await;
    fixture.write("a.json", &server("/c"));
    fixture.endpoints(&["/c"]).await;
}

/// Names are bytes. Two that look the same to people are two servers, of which none is left out.
#[tokio::test]
async fn files_whose_names_are_no_text_do_not_take_the_place_of_each_other() {
    let mut fixture = Fixture::start(&[]).await;
    for (name, endpoint) in [(&b"\xfe.json"[..], "/a"), (b"\xff.json", "/b")] {
        write(&fixture.folder.join(OsStr::from_bytes(name)), &server(endpoint));
    }
    fixture.endpoints(&["/a", "/b"]).await;
}

/// As of a file, the mode of the folder is noticed when it changes.
#[tokio::test]
async fn a_folder_that_can_be_trusted_again_is_read_again() {
    let mut fixture = Fixture::start(&[("a.json", &server("/a"))]).await;
    fs::set_permissions(&fixture.folder, Permissions::from_mode(0o777)).unwrap();
    fixture.write("b.json", &server("/b"));
    let is_faulty = |status: &ConfigStatus| !status.faults.is_empty();
    soon(async {
        while !is_faulty(&fixture.config.handle().status()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    fs::set_permissions(&fixture.folder, Permissions::from_mode(0o755)).unwrap();
    fixture.endpoints(&["/a", "/b"]).await;
}

/// A state folder whose disk hangs: a version is written to a named pipe that nobody reads.
struct HangingState(PathBuf);

impl HangingState {
    fn new(state_dir: &Path) -> Self {
        let draft = state_dir.join("servers/.draft");
        make_pipe(&draft);
        Self(draft)
    }
}

impl Drop for HangingState {
    /// Lets the write that waits go on. The next one finds no pipe.
    fn drop(&mut self) {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let _reader = rustix::fs::open(&self.0, flags, rustix::fs::Mode::empty()).unwrap();
        fs::remove_file(&self.0).unwrap();
    }
}

#[tokio::test]
async fn a_state_folder_that_hangs_holds_no_server_up() {
    let place = tempfile::tempdir().unwrap();
    let [folder, state_dir] = ["hookserver.d", "state"].map(|name| place.path().join(name));
    let options = ConfigOptions { state_dir: Some(state_dir.clone()), ..of(&folder) };
    let config = Config::start(options, HookMetrics::default()).await.unwrap();
    let hanging = HangingState::new(&state_dir);
    let (mut servers, handle) = (config.servers(), config.handle());
    for (count, name) in [(1, "a.json"), (2, "b.json")] {
        write(&folder.join(name), &server("/a"));
        soon(servers.wait_for(|servers| servers.iter().count() == count)).await.unwrap();
    }
    let fault = |expected: bool| {
        let handle = handle.clone();
        soon(async move {
            let is = |problem: &String| problem.contains("no answer from the filesystem");
            while handle.status().problems().iter().any(is) != expected {
                tokio::task::yield_now().await;
            }
        })
    };
    fault(true).await;
    assert!(!handle.keep_state(false).await, "it is being written");
    drop(hanging);
    fault(false).await;
    assert_eq!(fs::read_to_string(state_dir.join("servers/b.json")).unwrap(), server("/a"));
    config.stop().await;
}

#[tokio::test]
async fn a_state_folder_that_hangs_does_not_hold_up_the_end() {
    let place = tempfile::tempdir().unwrap();
    let [folder, state_dir] = ["hookserver.d", "state"].map(|name| place.path().join(name));
    let options = ConfigOptions { state_dir: Some(state_dir.clone()), ..of(&folder) };
    let config = Config::start(options, HookMetrics::default()).await.unwrap();
    let _hanging = HangingState::new(&state_dir);
    write(&folder.join("a.json"), &server("/a"));
    soon(config.servers().wait_for(|servers| servers.iter().count() == 1)).await.unwrap();
    soon(config.stop()).await;
}

#[tokio::test]
async fn a_file_that_others_may_write_to_is_refused_until_they_may_not() {
    let mut fixture = Fixture::start(&[("a.json", &server("/a"))]).await;
    let path = fixture.folder.join("a.json");
    for mode in [0o664, 0o646] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        fixture.counts("wharf_proxy_hook_config_files{state=\"refused\"} 1").await;
        assert_eq!(fixture.names(), ["a.json"], "what it said when it could be trusted");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        fixture.counts("wharf_proxy_hook_config_files{state=\"refused\"} 0").await;
    }
    let outside = fixture.folder.parent().unwrap().join("real");
    write(&outside, &server("/b"));
    symlink(&outside, fixture.folder.join("b.json")).unwrap();
    fixture.endpoints(&["/a", "/b"]).await;
    fs::set_permissions(&outside, Permissions::from_mode(0o666)).unwrap();
    let report = check(&fixture.folder).to_string();
    assert!(report.contains("b.json: its mode 0666 lets others write to it"), "{report}");
}

/// Who may write to the folder that a link leads into can put another file in the place of the one
/// that it leads to.
#[test]
fn a_link_into_a_folder_that_others_may_write_to_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let [folder, outside] = ["hookserver.d", "outside"].map(|name| place.path().join(name));
    for made in [&folder, &outside] {
        DirBuilder::new().mode(0o755).create(made).unwrap();
    }
    write(&outside.join("real"), &server("/a"));
    symlink("../outside/real", folder.join("a.json")).unwrap();
    assert!(check(&folder).is_ok(), "{}", check(&folder));
    fs::set_permissions(&outside, Permissions::from_mode(0o777)).unwrap();
    let report = check(&folder).to_string();
    let outside = outside.canonicalize().unwrap();
    let why = format!("a.json: its folder {}: its mode 0777", outside.display());
    assert!(report.contains(&why), "{report}");
    // As /tmp is: what is there can be replaced by its owner alone.
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(&outside, Permissions::from_mode(0o1777)).unwrap();
        assert!(check(&folder).is_ok(), "{}", check(&folder));
    }
}

#[tokio::test]
async fn a_folder_that_others_may_write_to_is_an_error_at_start() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
    let error = Config::start(of(place.path()), HookMetrics::default()).await.unwrap_err();
    assert!(matches!(error, ConfigError::Folder(FolderError::Untrusted { .. })), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(place.path().to_str().unwrap()) && text.contains("chmod go-w"), "{text}");
}

#[tokio::test]
async fn a_folder_that_cannot_be_watched_is_an_error_at_start() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("file/hookserver.d");
    fs::write(place.path().join("file"), "in the way").unwrap();
    let error = Config::start(of(&folder), HookMetrics::default()).await.unwrap_err();
    assert!(matches!(error, ConfigError::Unwatched { .. }), "{error:?}");
    assert!(error.to_string().contains(folder.to_str().unwrap()), "{error}");
}

/// Only root can give files away, so only root can test it.
#[test]
fn a_file_of_a_stranger_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("a.json");
    write(&path, &server("/a"));
    if !rustix::process::geteuid().is_root() {
        wharf_testkit::skip::record(None, "needs root");
        return;
    }
    chown(&path, Some(65_534), None).unwrap();
    let report = check(place.path());
    let text = report.to_string();
    assert!(!report.is_ok() && text.contains("a.json: owned by uid 65534"), "{text}");
}

fn make_pipe(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_pipe_in_the_folder_stops_nobody_and_is_refused() {
    let place = tempfile::tempdir().unwrap();
    make_pipe(&place.path().join("a.json"));
    make_pipe(&place.path().join("README"));
    let report = check(place.path());
    let text = report.to_string();
    assert!(!report.is_ok() && text.contains("a.json: it is a named pipe"), "{text}");
    assert!(!text.contains("README"), "{text}");
}

/// None of these is the file, and none says that the file was deleted.
#[tokio::test]
async fn something_else_in_the_place_of_a_file_keeps_its_server() {
    type Make = fn(&Path);
    let makes: [(&str, Make); 4] = [
        ("a folder", |path| DirBuilder::new().mode(0o755).create(path).unwrap()),
        ("a named pipe", make_pipe),
        ("a socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
        ("a link to a file that is not there", |path| symlink("nowhere", path).unwrap()),
    ];
    for (kind, make) in makes {
        let mut fixture = Fixture::start(&[("a.json", &server("/a"))]).await;
        let (path, aside) = (fixture.folder.join("a.json"), fixture.folder.join(".a"));
        make(&aside);
        if kind == "a folder" {
            fs::remove_file(&path).unwrap();
        }
        fs::rename(&aside, &path).unwrap();
        fixture.counts("wharf_proxy_hook_config_files{state=\"refused\"} 1").await;
        let problems = fixture.config.handle().status().problems();
        let expected = format!("it is {kind}: expected a file");
        assert!(problems.iter().any(|problem| problem.contains(&expected)), "{problems:?}");
        // Files that are deleted are so for two seconds before this one is in force.
        for number in 0..2 {
            let other = format!("b{number}.json");
            fixture.write(&other, &server("/b"));
            fixture.endpoints(&["/a", "/b"]).await;
            fs::remove_file(fixture.folder.join(&other)).unwrap();
            fixture.endpoints(&["/a"]).await;
        }
        match kind {
            "a folder" => fs::remove_dir(&path).unwrap(),
            _ => fs::remove_file(&path).unwrap(),
        }
        fixture.endpoints(&[]).await;
    }
}

#[test]
fn a_check_says_everything() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let file = r#"{"remote-endpoint": "/run/a.sock", "failure-policy": "Fail", "order": 5,
        "timeout": "500ms", "runtime-hooks": ["PreRunPodSandbox", "PostStopPodSandbox"],
        "failure-policies": {"PostStopPodSandbox": "Ignore"}}"#;
    write(&path("a.json"), file);
    write(&path("b.json"), r#"{"remote-endpoint": "/run/a.sock", "comment": "what for"}"#);
    write(&path("c.json"), r#"{"remote-endpoint": 5}"#);
    write(&path("d.json"), "");
    write(&path("README"), "");
    let report = check(place.path());
    let folder = place.path().display();
    let expected = format!(
        "1. b.json at /run/a.sock (order 0): never asked\n\
         2. a.json at /run/a.sock (order 5, timeout 500ms): PreRunPodSandbox=Fail, PostStopPodSandbox=Ignore\n\
         error: {folder}/c.json: remote-endpoint: invalid type: integer `5`, expected a string at line 1 column 21\n\
         warning: {folder}/README: left alone: its name does not end in json\n\
         warning: {folder}/b.json: \"comment\" is not a key that has a meaning\n\
         warning: {folder}/b.json: runtime-hooks names no hook: the server is never asked\n\
         warning: {folder}/d.json: empty: says nothing yet\n\
         warning: {folder}/a.json: has the endpoint of b.json: it is asked twice\n"
    );
    assert_eq!(report.to_string(), expected);
    assert!(!report.is_ok());
    let first = report.servers.iter().last().unwrap();
    assert!(first.hooks.contains_key(&HookPoint::PreRunPodSandbox));

    let absent = check(&path("absent"));
    assert!(absent.is_ok() && absent.to_string().contains("no such folder"), "{absent}");
}
