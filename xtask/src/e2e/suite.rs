//! Kubernetes' e2e.test: its specs, its images, and runs of specs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::json;
use wharf_testkit::{cluster::Image, process::Process, rig::Rig};

use super::report::{self, Finished, SuiteReport};
use crate::shell;

/// The driver's definition file.
pub(super) const DEFINITION: &str = include_str!("driver.yaml");

/// Specs of the driver, and those of them to leave out: they take long, or disturb the node for
/// others.
const FOCUS: &str = "External.Storage";
const SKIP: &str = r"\[Slow\]|\[Disruptive\]|\[Serial\]";

/// The registry of all images: they are on the node already, and none is pulled.
const REGISTRY: &str = "wharf.test";
const REGISTRIES: [&str; 9] = [
    "buildImageRegistry",
    "cloudProviderGcpRegistry",
    "dockerLibraryRegistry",
    "gcEtcdRegistry",
    "gcRegistry",
    "invalidRegistry",
    "privateRegistry",
    "promoterE2eRegistry",
    "sigStorageRegistry",
];

/// The limit for a batch of specs.
const BATCH: Duration = Duration::from_secs(4 * 60 * 60);

/// The suite's program, and a folder for its files, which every run writes again.
pub(super) struct Suite {
    binary: PathBuf,
    agnhost: PathBuf,
    folder: PathBuf,
}

impl Suite {
    pub(super) fn new(binary: PathBuf, agnhost: PathBuf, folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let suite = Self { binary, agnhost, folder };
        let registries = REGISTRIES.map(|key| (key.to_owned(), json!(REGISTRY)));
        let registries: serde_json::Map<_, _> = registries.into_iter().collect();
        // JSON is YAML.
        fs::write(suite.file("registries.yaml"), json!(registries).to_string())?;
        fs::write(suite.file("driver.yaml"), DEFINITION)?;
        Ok(suite)
    }

    /// The names of all specs that match `focus`.
    pub(super) fn specs(&self, focus: Option<&str>) -> Result<Vec<String>> {
        let mut command = self.command();
        command.arg("--ginkgo.dry-run").arg(format!("--ginkgo.skip={SKIP}"));
        command.arg(format!("--ginkgo.focus={}", focus_of(focus)));
        shell::quiet(&mut command).context("--focus takes a regular expression of Go")?;
        Ok(report::selected(&self.report()?))
    }

    /// The images that the suite's pods run.
    pub(super) fn images(&self) -> Result<Vec<Image>> {
        let listed = shell::quiet(self.command().arg("--list-images"))?;
        let named = |image: &str| -> Vec<String> {
            let prefix = format!("{REGISTRY}/{image}:");
            listed.lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect()
        };
        let agnhost = Image {
            names: named("agnhost"),
            program: Some(self.agnhost.clone()),
            entrypoint: vec!["/agnhost".to_owned()],
            command: vec!["pause".to_owned()],
        };
        Ok(vec![
            agnhost,
            // Storage specs use nginx's shell only.
            Image::busybox([named("busybox"), named("nginx")].concat(), &["/bin/sh"]),
            Image::busybox(named("pause"), &["/bin/sleep", "2147483647"]),
        ])
    }

    /// Runs these specs, one after the other.
    pub(super) async fn run(&self, rig: &Rig, specs: &[String]) -> Result<Vec<Finished>> {
        let cluster = &rig.cluster;
        let mut command = self.command();
        command.args(specs.iter().map(|spec| format!("--ginkgo.focus={}", exactly(spec))));
        command.arg(flag("kubeconfig", cluster.kubeconfig()));
        command.arg(flag("kubectl-path", cluster.kubectl_binary()));
        command.arg(flag("kubelet-root-dir", &cluster.kubelet_root()));
        command.arg(flag("e2e-output-dir", &self.folder));
        command.args(["--ginkgo.timeout=4h", "--disable-log-dump"]);
        let _ = fs::remove_file(self.report_file());
        let mut process = Process::start("e2e", &command, cluster.folder())?;
        // The report contains the result, so the exit code is ignored.
        process.wait(BATCH).await?;
        let report = self.report().with_context(|| process.tail())?;
        report::finished(&report, specs).with_context(|| process.tail())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(&self.folder);
        command.env("KUBE_TEST_REPO_LIST", self.file("registries.yaml"));
        command.arg(flag("storage.testdriver", &self.file("driver.yaml")));
        command.arg(flag("repo-root", &self.folder));
        command.arg(flag("ginkgo.json-report", &self.report_file()));
        command.args(["--provider=skeleton", "--ginkgo.no-color"]);
        command
    }

    fn report(&self) -> Result<Vec<SuiteReport>> {
        let file = self.report_file();
        let text = fs::read(&file).with_context(|| format!("report {}", file.display()))?;
        Ok(serde_json::from_slice(&text)?)
    }

    fn report_file(&self) -> PathBuf {
        self.file("report.json")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// The expression for the driver's specs that match `focus`; a spec's name follows it.
fn focus_of(focus: Option<&str>) -> String {
    match focus {
        Some(focus) => format!("{FOCUS}.*(?:{focus})"),
        None => FOCUS.to_owned(),
    }
}

/// The expression for one spec. The suite's own name precedes that of the spec.
fn exactly(spec: &str) -> String {
    format!(r" \Q{spec}\E$")
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
