//! csi-sanity, the conformance suite for CSI drivers, run against an endpoint.

use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{peers, process::Process};

/// A run of csi-sanity.
#[derive(Clone, Debug)]
pub struct Sanity {
    node: PathBuf,
    controller: Option<PathBuf>,
    access: Access,
    size: u64,
    parameters: BTreeMap<&'static str, BTreeMap<String, String>>,
    flags: Vec<String>,
    deadline: Duration,
}

/// The access mode of the suite's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As file systems.
    Mount,
    /// As block devices.
    Block,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed.
    pub failed: usize,
    /// Cases skipped, since the driver does not have the capability.
    pub skipped: usize,
    /// Cases that the suite itself disables.
    pub pending: usize,
    /// The cases that failed, by name.
    pub failures: Vec<String>,
}

impl Sanity {
    /// The suite against a driver with one socket, in mount mode, with volumes of 1 GiB.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            node: socket.into(),
            controller: None,
            access: Access::Mount,
            size: 1 << 30,
            parameters: BTreeMap::new(),
            flags: Vec::new(),
            deadline: Duration::from_secs(300),
        }
    }

    /// Sets the controller's socket, if it differs from the node's.
    #[must_use]
    pub fn controller(mut self, socket: impl Into<PathBuf>) -> Self {
        self.controller = Some(socket.into());
        self
    }

    /// Sets the access mode.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets the size of volumes, in bytes; expansion doubles it.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    /// Sets the parameters of volumes.
    #[must_use]
    pub fn parameters(self, parameters: &[(&str, &str)]) -> Self {
        self.file("testvolumeparameters", parameters)
    }

    /// Sets the parameters of ControllerModifyVolume.
    #[must_use]
    pub fn mutable_parameters(self, parameters: &[(&str, &str)]) -> Self {
        self.file("testvolumemutableparameters", parameters)
    }

    /// Sets the parameters of snapshots.
    #[must_use]
    pub fn snapshot_parameters(self, parameters: &[(&str, &str)]) -> Self {
        self.file("testsnapshotparameters", parameters)
    }

    /// Sets the file with secrets for the RPCs, in the suite's format.
    #[must_use]
    pub fn secrets(self, file: &Path) -> Self {
        self.flag(format!("--csi.secrets={}", file.display()))
    }

    /// Lets the suite publish volumes up to the node's limit.
    #[must_use]
    pub fn attach_limit(self) -> Self {
        self.flag("--csi.testnodevolumeattachlimit")
    }

    /// Adds a flag of csi-sanity.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Limits the duration of the run, to 5 minutes by default.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs the suite, with its files and mounts in `folder`. `None` if this run skips csi-sanity;
    /// the current test is then recorded as skipped.
    pub async fn run(&self, folder: &Path) -> Result<Option<Score>> {
        let Some(program) = peers::binary("csi-sanity") else { return Ok(None) };
        let report = folder.join("csi-sanity.xml");
        let mut command = Command::new(program);
        command
            .arg(format!("--csi.endpoint={}", self.node.display()))
            .arg(format!("--csi.mountdir={}", folder.join("target").display()))
            .arg(format!("--csi.stagingdir={}", folder.join("staging").display()))
            .arg(format!("--csi.testvolumesize={}", self.size))
            .arg(format!("--csi.testvolumeexpandsize={}", self.size * 2))
            .arg(format!("--ginkgo.junit-report={}", report.display()))
            .arg("--ginkgo.no-color")
            .arg(match self.access {
                Access::Mount => "--csi.testvolumeaccesstype=mount",
                Access::Block => "--csi.testvolumeaccesstype=block",
            });
        if let Some(controller) = &self.controller {
            command.arg(format!("--csi.controllerendpoint={}", controller.display()));
        }
        for (flag, parameters) in &self.parameters {
            let file = folder.join(format!("{flag}.yaml"));
            std::fs::write(&file, yaml(parameters)?)?;
            command.arg(format!("--csi.{flag}={}", file.display()));
        }
        command.args(&self.flags);
        let mut process = Process::start("csi-sanity", &command, folder)?;
        let status = process.wait(self.deadline).await?;
        let text = std::fs::read_to_string(&report)
            .with_context(|| format!("csi-sanity left no report: {status}:\n{}", process.tail()))?;
        let score = Score::read(&text)?;
        ensure!(status.success() == (score.failed == 0), "csi-sanity: {status}, {score:?}");
        Ok(Some(score))
    }

    fn file(mut self, flag: &'static str, parameters: &[(&str, &str)]) -> Self {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        self.parameters.insert(flag, parameters.iter().map(own).collect());
        self
    }
}

impl Score {
    /// Reads a JUnit report. Entries that are not cases, such as the suite's set-up, do not count.
    fn read(report: &str) -> Result<Self> {
        let mut score = Self::default();
        for case in report.split("<testcase ").skip(1) {
            let attribute = |name: &str| {
                let (_, rest) = case.split_once(&format!("{name}=\""))?;
                rest.split_once('"').map(|(value, _)| value)
            };
            let (name, status) = attribute("name")
                .zip(attribute("status"))
                .context("csi-sanity's report has a case without a name or a status")?;
            let Some(name) = name.strip_prefix("[It] ") else { continue };
            match status {
                "passed" => score.passed += 1,
                "skipped" => score.skipped += 1,
                "pending" => score.pending += 1,
                _ => {
                    score.failed += 1;
                    score.failures.push(unescape(name));
                }
            }
        }
        if score == Self::default() {
            bail!("csi-sanity's report has no cases");
        }
        Ok(score)
    }
}

fn yaml(parameters: &BTreeMap<String, String>) -> Result<String> {
    let mut text = String::new();
    for (key, value) in parameters {
        // A JSON string is a YAML string, too.
        writeln!(text, "{}: {}", serde_json::to_string(key)?, serde_json::to_string(value)?)?;
    }
    Ok(text)
}

fn unescape(text: &str) -> String {
    text.replace("&#34;", "\"").replace("&#39;", "'").replace("&lt;", "<").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_counted() {
        let report = r#"<testsuites tests="5" failures="1"><testsuite name="CSI">
            <testcase name="[BeforeSuite]" classname="s" status="passed" time="0.1"></testcase>
            <testcase name="[It] Node should work" classname="s" status="passed" time="0.1"></testcase>
            <testcase name="[It] a &#34;b&#34; &amp; c" classname="s" status="failed" time="0.1"><failure message="no"/></testcase>
            <testcase name="[It] d" classname="s" status="skipped" time="0"><skipped/></testcase>
            <testcase name="[It] e" classname="s" status="pending" time="0"><skipped/></testcase>
            </testsuite></testsuites>"#;
        let failures = vec!["a \"b\" & c".to_owned()];
        let expected = Score { passed: 1, failed: 1, skipped: 1, pending: 1, failures };
        assert_eq!(Score::read(report).unwrap(), expected);
        assert!(Score::read("").is_err());
    }
}
