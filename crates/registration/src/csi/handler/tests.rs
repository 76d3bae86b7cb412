use std::sync::Arc;

use super::{super::node::NoApi, *};
use crate::csi::node::RecordOptions;

const ENDPOINT: &str = "/run/plugins/test.plugin/csi.sock";

fn plugin(name: &str, endpoint: &str, versions: &[&str]) -> Plugin {
    Plugin {
        kind: "CSIPlugin".into(),
        name: name.into(),
        endpoint: endpoint.into(),
        versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        socket: format!("/run/plugins_registry/{name}-reg.sock").into(),
    }
}

fn handler() -> CsiHandler {
    let record = NodeRecord::start(Arc::new(NoApi), RecordOptions::default());
    CsiHandler::new(record, CsiOptions::default())
}

/// A handler that has `test.plugin` at [`ENDPOINT`] in a version.
fn handler_with(version: &str) -> CsiHandler {
    let handler = handler();
    let options = DriverOptions { hold: false, ..DriverOptions::default() };
    let instance = Instance {
        socket: "/run/plugins_registry/standing-reg.sock".into(),
        endpoint: ENDPOINT.into(),
        version: Version::parse(version).unwrap(),
        driver: Driver::new(ENDPOINT, options),
        info: wharf_csi::NodeInfo::default(),
        watching: JoinSet::new(),
    };
    handler.drivers.add("test.plugin", instance);
    handler
}

#[tokio::test]
async fn versions_are_judged_as_kubelet_does() {
    let none = |versions: &str, error: &str| {
        Some(format!(
            "validation failed for CSI Driver test.plugin at endpoint {ENDPOINT}: \
             kubernetes.io/csi: ValidatePlugin for CSI driver \"test.plugin\" failed. \
             None of the versions specified {versions} are supported. err={error}"
        ))
    };
    let old =
        |version: &str| format!("highest supported version reported is {version}, must be v1.x");
    let empty = "validation failed for CSI Driver test.plugin at endpoint /run/plugins/test.plugin/csi.sock: \
        kubernetes.io/csi: ValidatePlugin for CSI driver \"test.plugin\" failed. \
        Plugin returned an empty list for supported versions";
    let cases: [(&[&str], Option<String>); 13] = [
        (&["v1.0.0"], None),
        (&["0.3.0"], none(r#"["0.3.0"]"#, &old("0.3.0"))),
        (&["0.2.0"], none(r#"["0.2.0"]"#, &old("0.2.0"))),
        (&["0.2.0", "v0.3.0"], none(r#"["0.2.0" "v0.3.0"]"#, &old("0.3.0"))),
        (&["0.2.0", "v1.0.0"], None),
        (&["0.2.0", "v1.2.3"], None),
        (&["v1.2.3", "v0.3.0"], None),
        (&["v1.2.3", "v0.3.0", "2.0.1"], None),
        (&["v1.2.3", "4.9.12", "v0.3.0", "2.0.1"], None),
        (&["v1.2.3", "boo", "v0.3.0", "2.0.1"], None),
        (
            &["4.9.12", "2.0.1"],
            none(
                r#"["4.9.12" "2.0.1"]"#,
                "could not find a highest supported version from versions ([4.9.12 2.0.1]) reported: <nil>",
            ),
        ),
        (&[], Some(empty.to_owned())),
        (
            &["var", "boo", "foo"],
            none(
                r#"["var" "boo" "foo"]"#,
                "could not find a highest supported version from versions ([var boo foo]) reported: \
                 could not parse \"var\" as version",
            ),
        ),
    ];
    let handler = handler();
    for (versions, expected) in cases {
        let outcome = handler.validate(&plugin("test.plugin", ENDPOINT, versions)).await;
        assert_eq!(outcome.err().map(|PluginRefusal(text)| text), expected, "{versions:?}");
    }
}

#[tokio::test]
async fn a_second_instance_is_taken_at_another_endpoint_and_not_below_the_first() {
    let elsewhere = "/run/plugins/test.plugin-2/csi.sock";
    let cases = [
        ("another name", "1.0.0", "test.plugin2", ENDPOINT, "v1.0.0", true),
        ("same version, same endpoint", "1.0.0", "test.plugin", ENDPOINT, "v1.0.0", false),
        ("same version elsewhere", "1.0.0", "test.plugin", elsewhere, "v1.0.0", true),
        ("higher version", "1.0.0", "test.plugin", ENDPOINT, "v1.0.1", true),
        ("higher version elsewhere", "1.0.0", "test.plugin", elsewhere, "v1.0.1", true),
        ("lower version", "1.0.1", "test.plugin", ENDPOINT, "v1.0.0", false),
        ("lower version elsewhere", "1.0.1", "test.plugin", elsewhere, "v1.0.0", false),
    ];
    for (case, standing, name, endpoint, version, taken) in cases {
        let handler = handler_with(standing);
        let outcome = handler.validate(&plugin(name, endpoint, &[version])).await;
        let expected = (!taken).then(|| {
            format!(
                "validation failed for CSI Driver {name} at endpoint {endpoint}: \
                 kubernetes.io/csi: ValidatePlugin for CSI driver {name:?} failed. Another driver \
                 with the same name is already registered with a higher supported version: {standing:?}"
            )
        });
        assert_eq!(outcome.err().map(|PluginRefusal(text)| text), expected, "{case}");
    }
}

#[tokio::test]
async fn a_nameless_driver_is_refused() {
    let refusal = handler().validate(&plugin("", ENDPOINT, &["1.0.0"])).await.unwrap_err();
    assert!(refusal.0.contains("name is empty"), "{refusal}");
}

#[tokio::test]
async fn a_driver_whose_name_kubernetes_does_not_take_is_refused() {
    for (name, shown) in [
        ("../evil", "\"../evil\" is not domain-like"),
        ("a\x1b[2Jb", "\"a\\u{1b}[2Jb\" is not domain-like"),
        (&"x".repeat(1000), "has 1000 bytes: expected at most 63"),
    ] {
        let refusal = handler().validate(&plugin(name, ENDPOINT, &["1.0.0"])).await.unwrap_err();
        assert!(refusal.0.contains(shown) && refusal.0.len() < 300, "{refusal}");
    }
}

#[tokio::test]
async fn a_driver_that_does_not_answer_is_refused_and_not_kept() {
    let handler = handler();
    let plugin = plugin("test.plugin", "/nonexistent/csi.sock", &["1.0.0"]);
    let refusal = handler.register(&plugin).await.unwrap_err();
    assert!(refusal.0.starts_with("rpc error: code = Unavailable desc = "), "{refusal}");
    assert!(refusal.0.contains("/nonexistent/csi.sock"), "{refusal}");
    assert_eq!(handler.drivers().view(), []);
}

#[tokio::test]
async fn a_second_socket_for_one_endpoint_leaves_alone() {
    let handler = handler_with("1.0.0");
    let never_registered = plugin("test.plugin", ENDPOINT, &["1.0.0"]);
    handler.deregister(&never_registered).await;
    assert_eq!(handler.drivers().view().len(), 1);
}
