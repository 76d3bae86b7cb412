use std::{path::Path, time::Duration};

use async_trait::async_trait;
use tokio::{sync::watch, task::JoinSet};
use tracing::{debug, info, warn};
use wharf_csi::{CALL_TIMEOUT, Driver, DriverOptions};
use wharf_facts::{
    validation::check_driver_name,
    version::{Version, highest_supported_version},
};
use wharf_uds::{LinkState, RpcMetrics, code_name};

use super::{
    drivers::{Drivers, Instance},
    node::NodeRecord,
};
use crate::manager::{Plugin, PluginHandler, Refusal};

/// How a [`CsiHandler`] talks to drivers.
#[derive(Clone, Debug)]
pub struct CsiOptions {
    /// How long a driver may take to answer `NodeGetInfo`.
    pub timeout: Duration,
    /// Where calls to drivers are counted.
    pub metrics: Option<RpcMetrics>,
}

impl Default for CsiOptions {
    fn default() -> Self {
        Self { timeout: CALL_TIMEOUT, metrics: None }
    }
}

/// Registers CSI drivers: asks what they know of this node and has it written to the API.
pub struct CsiHandler {
    drivers: Drivers,
    record: NodeRecord,
    options: CsiOptions,
    /// Counts registrations and deregistrations, for those who follow the set of drivers.
    changed: watch::Sender<u64>,
}

impl CsiHandler {
    /// A handler that writes to the given record.
    pub fn new(record: NodeRecord, options: CsiOptions) -> Self {
        Self { drivers: Drivers::default(), record, options, changed: watch::channel(0).0 }
    }

    /// The drivers as they come and go.
    pub fn drivers(&self) -> Drivers {
        self.drivers.clone()
    }

    /// Fires when a driver came or went.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Kubelet's rule for versions, but for one thing: an equal version at another endpoint is an update under way.
    fn check_versions(&self, caller: &str, plugin: &Plugin) -> Result<Version, Refusal> {
        let Plugin { name, endpoint, versions, .. } = plugin;
        let failed = format!("kubernetes.io/csi: {caller} for CSI driver {name:?} failed.");
        if versions.is_empty() {
            return Err(Refusal(format!(
                "{failed} Plugin returned an empty list for supported versions"
            )));
        }
        let version = highest_supported_version(versions).map_err(|error| {
            Refusal(format!(
                "{failed} None of the versions specified {} are supported. err={error}",
                crate::text::go_list(versions)
            ))
        })?;
        if let Some((standing, same_endpoint)) = self.drivers.standing(name, endpoint)
            && (standing > version || (standing == version && same_endpoint))
        {
            return Err(Refusal(format!(
                "{failed} Another driver with the same name is already registered with a higher supported version: {:?}",
                standing.to_string()
            )));
        }
        Ok(version)
    }

    /// Follows the connection of an instance: a driver that comes back may be another version of itself.
    fn follow(&self, plugin: &Plugin, driver: &Driver) -> JoinSet<()> {
        let mut watching = JoinSet::new();
        watching.spawn(follow(
            plugin.clone(),
            driver.clone(),
            self.drivers.clone(),
            self.record.clone(),
        ));
        watching
    }

    fn announce(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl PluginHandler for CsiHandler {
    async fn validate(&self, plugin: &Plugin) -> Result<(), Refusal> {
        if plugin.name.is_empty() {
            return Err(Refusal::new(
                "validation failed: the CSI driver's name is empty; GetInfo must return the name that GetPluginInfo returns",
            ));
        }
        check_driver_name(&plugin.name)
            .map_err(|error| Refusal(format!("validation failed: {error}")))?;
        self.check_versions("ValidatePlugin", plugin).map_err(|Refusal(reason)| {
            Refusal(format!(
                "validation failed for CSI Driver {} at endpoint {}: {reason}",
                plugin.name, plugin.endpoint
            ))
        })?;
        Ok(())
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), Refusal> {
        let version = self.check_versions("RegisterPlugin", plugin)?;
        let socket = wharf_uds::socket_of(&plugin.endpoint)
            .map_err(|error| Refusal(format!("kubernetes.io/csi: {error}")))?;
        let driver = Driver::new(
            socket,
            DriverOptions {
                hold: true,
                timeout: self.options.timeout,
                metrics: self.options.metrics.as_ref().map(|it| it.for_driver(&plugin.name)),
            },
        );
        let info = driver.node_info().await.map_err(|status| {
            Refusal(format!(
                "rpc error: code = {} desc = {}",
                code_name(status.code()),
                status.message()
            ))
        })?;
        // Usable from here on; whatever happens below, deregister or this function takes it out again.
        self.drivers.add(
            &plugin.name,
            Instance {
                socket: plugin.socket.clone(),
                endpoint: plugin.endpoint.clone(),
                version,
                driver: driver.clone(),
                info: info.clone(),
                watching: JoinSet::new(),
            },
        );
        if let Err(refusal) = self.record.install(&plugin.name, info).await {
            self.withdraw(plugin).await;
            return Err(refusal);
        }
        let watching = self.follow(plugin, &driver);
        self.drivers.watch(&plugin.name, &plugin.socket, watching);
        self.announce();
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.withdraw(plugin).await;
        self.announce();
    }
}

impl CsiHandler {
    /// Takes an instance out. What the cluster sees is what the newest instance left says, or nothing after the grace.
    async fn withdraw(&self, plugin: &Plugin) {
        match self.drivers.remove(&plugin.name, &plugin.socket) {
            Some(left) => self.record.update(&plugin.name, left).await,
            None => self.record.leave(&plugin.name).await,
        }
    }
}

async fn follow(plugin: Plugin, driver: Driver, drivers: Drivers, record: NodeRecord) {
    let mut link = driver.link();
    let mut seen = match *link.borrow_and_update() {
        LinkState::Connected { generation } => generation,
        _ => 0,
    };
    while link.changed().await.is_ok() {
        let state = link.borrow_and_update().clone();
        match state {
            LinkState::Down { error } => {
                warn!(driver = %plugin.name, endpoint = %plugin.endpoint, %error,
                    "CSI driver is not connected, trying again");
            }
            LinkState::Connected { generation } if generation != seen => {
                seen = generation;
                info!(driver = %plugin.name, endpoint = %plugin.endpoint, "CSI driver is connected again");
                refresh(&plugin.name, &plugin.socket, &drivers, &record).await;
            }
            _ => debug!(driver = %plugin.name, state = ?state, "CSI driver's connection"),
        }
    }
}

/// Asks a driver anew what it knows of this node, and has that written.
pub(super) async fn refresh(name: &str, socket: &Path, drivers: &Drivers, record: &NodeRecord) {
    let Some(driver) = drivers.instance(name, socket) else { return };
    match driver.node_info().await {
        Ok(info) if info.node_id.is_empty() => {
            warn!(driver = %name, "NodeGetInfo returned no node ID, keeping the one known");
        }
        Ok(info) => {
            if let Some(shown) = drivers.learned(name, socket, info) {
                record.update(name, shown).await;
            }
        }
        Err(status) => {
            warn!(driver = %name, code = code_name(status.code()), error = %status.message(),
                "NodeGetInfo failed, keeping what is known");
        }
    }
}

#[cfg(test)]
mod tests {
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
        let old = |version: &str| {
            format!("highest supported version reported is {version}, must be v1.x")
        };
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
            assert_eq!(outcome.err().map(|Refusal(text)| text), expected, "{versions:?}");
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
            assert_eq!(outcome.err().map(|Refusal(text)| text), expected, "{case}");
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
            let refusal =
                handler().validate(&plugin(name, ENDPOINT, &["1.0.0"])).await.unwrap_err();
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
}
