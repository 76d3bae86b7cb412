//! Ginkgo's report in JSON.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde::Deserialize;

use super::results::{Outcome, State};

const NANOSECONDS: f64 = 1e9;

/// A suite of a report, which is a list of suites.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct SuiteReport {
    #[serde(default)]
    spec_reports: Option<Vec<SpecReport>>,
}

/// A spec, or a step before or after all specs.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    leaf_node_type: String,
    state: String,
    run_time: f64,
    #[serde(default)]
    failure: Option<Failure>,
    #[serde(default)]
    captured_ginkgo_writer_output: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

/// The result of a spec, and its log.
pub(crate) struct Finished {
    pub(crate) spec: String,
    pub(crate) outcome: Outcome,
    pub(crate) log: String,
}

/// The names of the specs that a dry run selected.
pub(crate) fn selected(suites: &[SuiteReport]) -> Vec<String> {
    let specs = specs(suites).filter(|spec| spec.is_spec() && spec.state != "skipped");
    // Sorted, so that every run has the same order.
    specs.map(SpecReport::name).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The results of `wanted` specs. An interrupted spec has none.
pub(crate) fn finished(suites: &[SuiteReport], wanted: &[String]) -> Result<Vec<Finished>> {
    if let Some(step) = specs(suites).find(|step| !step.is_spec() && step.has_failed()) {
        bail!("{}: {}", step.leaf_node_type, step.message());
    }
    let mut found = Vec::new();
    for spec in specs(suites).filter(|spec| spec.is_spec()) {
        let name = spec.name();
        if let Some(outcome) = spec.outcome().filter(|_| wanted.contains(&name)) {
            let log = format!("{}\n\n{}", spec.message(), spec.captured_ginkgo_writer_output);
            found.push(Finished { spec: name, outcome, log });
        }
    }
    Ok(found)
}

fn specs(suites: &[SuiteReport]) -> impl Iterator<Item = &SpecReport> {
    suites.iter().filter_map(|suite| suite.spec_reports.as_ref()).flatten()
}

impl SpecReport {
    fn is_spec(&self) -> bool {
        self.leaf_node_type == "It"
    }

    fn has_failed(&self) -> bool {
        matches!(self.state.as_str(), "failed" | "panicked" | "timedout")
    }

    /// The full name, which `--ginkgo.focus` matches: without containers that have no text.
    fn name(&self) -> String {
        let containers = self.container_hierarchy_texts.iter().flatten();
        let words = containers.chain([&self.leaf_node_text]).map(String::as_str);
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn message(&self) -> &str {
        self.failure.as_ref().map_or("", |failure| failure.message.trim())
    }

    fn outcome(&self) -> Option<Outcome> {
        let state = match self.state.as_str() {
            "passed" => State::Passed,
            // A spec that the suite skips has a message; others were not selected, or followed an
            // interrupt.
            "skipped" if !self.message().is_empty() => State::Skipped,
            _ if self.has_failed() => State::Failed,
            _ => return None,
        };
        let reason = self.message().to_owned();
        Some(Outcome { state, reason, seconds: self.run_time / NANOSECONDS })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn report(specs: &[Value]) -> Vec<SuiteReport> {
        serde_json::from_value(json!([{ "SpecReports": specs }])).unwrap()
    }

    fn spec(name: &str, kind: &str, state: &str, message: &str) -> Value {
        json!({
            "ContainerHierarchyTexts": ["outer", "", "inner"],
            "LeafNodeText": name,
            "LeafNodeType": kind,
            "State": state,
            "RunTime": 2_500_000_000u64,
            "Failure": { "Message": message },
            "CapturedGinkgoWriterOutput": "steps",
        })
    }

    #[test]
    fn a_dry_run_lists_what_is_selected() {
        let report = report(&[
            spec("b", "It", "passed", ""),
            spec("a", "It", "passed", ""),
            spec("other", "It", "skipped", ""),
            spec("", "BeforeSuite", "passed", ""),
        ]);
        assert_eq!(selected(&report), ["outer inner a", "outer inner b"]);
    }

    #[test]
    fn only_specs_that_ran_to_their_end_have_results() {
        let report = report(&[
            spec("a", "It", "passed", ""),
            spec("b", "It", "timedout", "too late"),
            spec("c", "It", "skipped", "not supported"),
            spec("d", "It", "skipped", ""),
            spec("e", "It", "interrupted", "by a signal"),
            spec("f", "It", "passed", ""),
        ]);
        let wanted = ["a", "b", "c", "d", "e"].map(|name| format!("outer inner {name}"));
        let found = finished(&report, &wanted).unwrap();
        let states: Vec<_> = found.iter().map(|it| (it.spec.as_str(), it.outcome.state)).collect();
        assert_eq!(
            states,
            [
                ("outer inner a", State::Passed),
                ("outer inner b", State::Failed),
                ("outer inner c", State::Skipped)
            ]
        );
        assert_eq!(found[1].outcome.reason, "too late");
        assert!(found[1].log.contains("steps"));
        assert!((found[1].outcome.seconds - 2.5).abs() < 1e-9);
    }

    #[test]
    fn a_suite_that_cannot_begin_has_no_results() {
        let report = report(&[
            spec("", "SynchronizedBeforeSuite", "failed", "no node is ready"),
            spec("a", "It", "skipped", ""),
        ]);
        let error = finished(&report, &["outer inner a".to_owned()]).err().unwrap();
        assert!(error.to_string().contains("no node is ready"), "{error}");
    }
}
