//! The alert rules of deploy/: each uses an existing metric, and fires when it should and not
//! before.

use std::{collections::BTreeSet, process::Command};

use serde_json::Value;
use wharf_testkit::skip;

use crate::{
    program::{Kind, Make, Program},
    readiness::Shown,
    sidecar::Order,
    site::Site,
};

const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/alerts/sidecars.yaml");
/// Series of metrics, and which alerts they lead to.
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/alerts/sidecars.yaml");

/// Whether promtool, which has to be content, is there.
fn promtool(args: &[&str]) -> bool {
    let Ok(checked) = Command::new("promtool").args(args).output() else {
        skip::record(None, "needs promtool, of Debian's prometheus");
        return false;
    };
    let [told, errors] =
        [&checked.stdout, &checked.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(checked.status.success(), "promtool {args:?}: {told}{errors}");
    true
}

fn read(path: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The rules of all groups.
fn alerts() -> Vec<Value> {
    let rules = read(ALERTS);
    let groups = rules["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

#[test]
fn each_alert_fires_when_it_should_and_not_before() {
    if !promtool(&["test", "rules", TESTS]) {
        return;
    }
    let tests = read(TESTS);
    let tests = tests["tests"].as_array().unwrap();
    let checks: Vec<&Value> =
        tests.iter().flat_map(|test| test["promql_expr_test"].as_array().unwrap()).collect();
    for rule in alerts() {
        let alert = rule["alert"].as_str().unwrap();
        let expression = format!("ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}}");
        for fires in [true, false] {
            let is_so = |check: &&&Value| {
                check["expr"] == *expression
                    && check["exp_samples"].as_array().unwrap().is_empty() != fires
            };
            assert!(checks.iter().any(|check| is_so(&check)), "{alert}, fires: {fires}");
        }
    }
}

#[tokio::test]
async fn every_alert_is_about_a_metric_that_there_is() {
    if !promtool(&["check", "rules", ALERTS]) {
        return;
    }
    let Some(site) = Site::new("eyes-alerts").await else { return };
    let shown = Shown::new();
    let more = ["--http-endpoint", &shown.0];
    let order = Order {
        more: &more,
        ..site.order(Program::One(Kind::Provisioner, Make::Ours), Some("alerts"))
    };
    let mut sidecar = order.start().unwrap();
    site.term(&Kind::Provisioner.lease(&site.name), |_| true).await;
    let metrics = shown.reads("200", &[]).await;
    let described: BTreeSet<&str> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    for rule in alerts() {
        let about = rule["expr"].as_str().unwrap();
        assert!(
            described.iter().any(|metric| about.contains(metric)),
            "{about}: not in {described:?}"
        );
    }
    sidecar.stop().await;
}
