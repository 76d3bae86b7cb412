//! `/readyz` and metrics of a process that cannot work.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::Command,
};

use wharf_testkit::{
    csi_driver::{DriverScript, ScriptedDriver},
    deploy::{self, Subject},
    process::wait_for,
    relay::Relay,
};

use crate::{
    api::PATIENCE,
    life::Life,
    program::{Kind, Make, Program},
    role::RIGHTLESS,
    sidecar::Order,
    site::Site,
};

/// Where a process shows itself.
pub(crate) struct Shown(pub(crate) String);

impl Shown {
    /// On a port that was free a moment ago.
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self(listener.local_addr().unwrap().to_string())
    }

    pub(crate) fn get(&self, path: &str) -> (String, String) {
        let url = format!("http://{}{path}", self.0);
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--max-time", "10", "--write-out", "\n%{http_code}", &url]);
        let text = String::from_utf8(curl.output().unwrap().stdout).unwrap();
        let (body, code) = text.rsplit_once('\n').unwrap();
        (code.to_owned(), body.to_owned())
    }

    /// Waits until it says of itself what is wanted, and gives its metrics then.
    pub(crate) async fn reads(&self, code: &str, wanted: &[&str]) -> String {
        let said = async || {
            let (answer, body) = self.get("/readyz");
            (answer == code && wanted.iter().all(|text| body.contains(text))).then_some(())
        };
        if let Err(error) = wait_for(PATIENCE, "/readyz", said).await {
            panic!("{error}: {:?}, wanted {code} {wanted:?}", self.get("/readyz"));
        }
        self.get("/metrics").1
    }
}

fn assert_shows(metrics: &str, lines: &[&str]) {
    for line in lines {
        assert!(metrics.lines().any(|it| it == *line), "no {line} in\n{metrics}");
    }
}

#[tokio::test]
async fn a_driver_that_is_gone_is_seen() {
    let Some(site) = Site::new("eyes-driver").await else { return };
    let (door, socket) = site.open("seen.sock");
    let shown = Shown::new();
    let more = ["--http-endpoint", &shown.0];
    let program = Program::One(Kind::Provisioner, Make::Ours);
    let order = Order { socket, more: &more, ..site.order(program, None) };
    let mut sidecar = order.start().unwrap();
    let metrics = shown.reads("200", &[]).await;
    assert_shows(
        &metrics,
        &[
            "wharf_sidecars_driver_connected 1",
            "wharf_sidecars_cache_synced{kind=\"PersistentVolume\"} 1",
            "wharf_sidecars_watch_failures_total{kind=\"PersistentVolume\"} 0",
            "wharf_sidecars_controller_restarts_total{controller=\"provisioner\"} 0",
        ],
    );
    for texts in [&["CSI driver is ready"][..], &["cache synced", "kind=\"PersistentVolume\""]] {
        assert_eq!(sidecar.lines(texts), 1, "{texts:?} in {}", sidecar.log());
    }
    drop(door);
    let metrics =
        shown.reads("503", &["CSI driver eyes-driver is not connected at", "seen.sock"]).await;
    assert_shows(&metrics, &["wharf_sidecars_driver_connected 0"]);
    let (_door, _) = site.open("seen.sock");
    shown.reads("200", &[]).await;
    sidecar.stop().await;
}

#[tokio::test]
async fn rights_that_an_account_lacks_are_named_until_they_are_granted() {
    let Some(site) = Site::new("eyes-rights").await else { return };
    let shown = Shown::new();
    let more = ["--http-endpoint", &shown.0];
    let program = Program::One(Kind::Provisioner, Make::Ours);
    let order = Order { user: RIGHTLESS, more: &more, ..site.order(program, None) };
    let mut sidecar = order.start().unwrap();
    let wanted = [
        "the account may not watch persistentvolumes: grant it",
        "not all objects of kind PersistentVolume are known yet",
    ];
    let metrics = shown.reads("503", &wanted).await;
    assert_shows(
        &metrics,
        &[
            "wharf_sidecars_missing_verb{verb=\"watch\",resource=\"persistentvolumes\",group=\"\"} 1",
            "wharf_sidecars_cache_synced{kind=\"PersistentVolume\"} 0",
        ],
    );
    let mut roles = deploy::roles("provisioner", "default", &[Subject::User(RIGHTLESS)]).unwrap();
    for role in &mut roles {
        role["metadata"]["name"] = "eyes-rights".into();
        if let Some(named) = role.get_mut("roleRef") {
            named["name"] = "eyes-rights".into();
        }
    }
    site.cluster.apply_all(&roles).await.unwrap();
    let metrics = shown.reads("200", &[]).await;
    assert!(!metrics.contains("wharf_sidecars_missing_verb{"), "{metrics}");
    for text in ["account lacks a right", "account has been granted the missing right"] {
        let texts = [text, "verb=\"watch persistentvolumes\""];
        assert_eq!(sidecar.lines(&texts), 1, "{texts:?} in {}", sidecar.log());
    }
    Life::begin(&site, "data").await.end().await;
    sidecar.stop().await;
    site.ledger.assert_clean();
}

#[tokio::test]
async fn a_watch_that_fails_is_logged_and_counted() {
    let Some(site) = Site::new("eyes-watch").await else { return };
    let relay = Relay::open(site.cluster.server(), Ipv4Addr::LOCALHOST).await.unwrap();
    let shown = Shown::new();
    let more = ["--http-endpoint", &shown.0];
    let order = site.order(Program::One(Kind::Provisioner, Make::Ours), None);
    let mut sidecar =
        Order { server: Some(relay.address()), more: &more, ..order }.start().unwrap();
    shown.reads("200", &[]).await;
    // Its connections are closed, and no other can be made.
    drop(relay);
    sidecar.said("failed to watch, retrying", 1).await;
    let counted = async || {
        let metrics = shown.get("/metrics").1;
        let failures = "wharf_sidecars_watch_failures_total{kind=\"PersistentVolume\"} ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(failures)).unwrap();
        (count != "0").then_some(())
    };
    wait_for(PATIENCE, "a failed watch to be counted", counted).await.unwrap();
    sidecar.stop().await;
}

/// An elected replica asks for its Lease alone until it leads.
#[tokio::test]
async fn an_api_server_that_was_never_reached_is_seen() {
    let Some(site) = Site::new("eyes-api").await else { return };
    let relay = Relay::open(site.cluster.server(), Ipv4Addr::LOCALHOST).await.unwrap();
    relay.cut();
    let shown = Shown::new();
    let more = ["--http-endpoint", &shown.0];
    let order = site.order(Program::One(Kind::Provisioner, Make::Ours), Some("unreached"));
    let order = Order { server: Some(relay.address()), more: &more, ..order };
    let mut sidecar = order.start().unwrap();
    sidecar.said("failed to take Lease, retrying", 1).await;
    shown.reads("503", &["the API server has not been reached yet"]).await;
    relay.mend();
    shown.reads("200", &[]).await;
    sidecar.stop().await;
}

#[tokio::test]
async fn a_controller_that_fails_is_seen_and_old_objects_are() {
    let Some(site) = Site::with_snapshots("eyes-restarts").await else { return };
    let shown = Shown::new();
    let more = ["--http-endpoint", &shown.0];
    let order = site.order(Program::Combined, None);
    // A driver that says that it can do nothing.
    let driver =
        ScriptedDriver::serve(&order.folder.join("bare.sock"), DriverScript::new(&site.name));
    let order = Order { socket: driver.path().to_owned(), more: &more, ..order };
    let mut sidecar = order.start().unwrap();
    let metrics = shown.reads("503", &["resizer failed and restarts"]).await;
    let restarts =
        |name| format!("wharf_sidecars_controller_restarts_total{{controller=\"{name}\"}}");
    assert_shows(&metrics, &[&format!("{} 1", restarts("resizer"))]);
    let failed = ["controller failed, restarting", "controller=\"resizer\""];
    assert!(sidecar.lines(&failed) >= 1, "{}", sidecar.log());
    assert_shows(&metrics, &[&format!("{} 0", restarts("snapshot-controller"))]);
    // A queue is shown once its controller works, which the others may have done later than the
    // resizer failed.
    let shows_age = async || {
        let is_age = |line: &str| line.starts_with("wharf_oldest_pending_seconds{name=");
        shown.get("/metrics").1.lines().any(is_age).then_some(())
    };
    wait_for(PATIENCE, "the age of the oldest object", shows_age).await.unwrap();
    sidecar.stop().await;
}
