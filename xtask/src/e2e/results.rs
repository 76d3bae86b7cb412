//! Results by spec, in a file, so that an interrupted run can be continued.

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The result of one spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) state: State,
    /// Why it failed or was skipped; empty for a spec that passed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
    /// Duration of the spec, in seconds.
    pub(crate) seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Passed,
    Failed,
    Skipped,
}

/// The results of one binary with one version of the suite, by the spec's full name.
pub(crate) struct Results {
    file: PathBuf,
    outcomes: BTreeMap<String, Outcome>,
}

impl Results {
    /// Reads `file`; without it there are no results.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let outcomes = match fs::read(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            text => serde_json::from_slice(&text?)
                .with_context(|| format!("{}: remove it, or use --again", file.display()))?,
        };
        Ok(Self { file: file.to_owned(), outcomes })
    }

    pub(crate) fn get(&self, spec: &str) -> Option<&Outcome> {
        self.outcomes.get(spec)
    }

    /// Removes the results of `specs`.
    pub(crate) fn forget(&mut self, specs: &[String]) -> Result<()> {
        for spec in specs {
            self.outcomes.remove(spec);
        }
        self.write()
    }

    /// Adds results and writes the file.
    pub(crate) fn add(&mut self, new: impl IntoIterator<Item = (String, Outcome)>) -> Result<()> {
        self.outcomes.extend(new);
        self.write()
    }

    /// Counts the results of `specs`: passed, failed, skipped.
    pub(crate) fn count(&self, specs: &[String]) -> [usize; 3] {
        [State::Passed, State::Failed, State::Skipped].map(|state| {
            specs.iter().filter(|spec| self.get(spec).is_some_and(|it| it.state == state)).count()
        })
    }

    /// Replaces the file in one step: a run that is killed leaves the old one.
    fn write(&self) -> Result<()> {
        let parts = self.file.with_extension("part");
        let write = || -> Result<()> {
            if let Some(folder) = self.file.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&parts, serde_json::to_vec_pretty(&self.outcomes)?)?;
            Ok(fs::rename(&parts, &self.file)?)
        };
        write().with_context(|| self.file.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_outlive_a_run_until_they_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("e2e/results.json");
        let [a, b, c] = ["a", "b", "c"].map(str::to_owned);
        let outcome = |state| Outcome { state, reason: String::new(), seconds: 1.5 };
        let mut results = Results::read(&file).unwrap();
        results.add([(a.clone(), outcome(State::Passed))]).unwrap();
        results.add([(b.clone(), outcome(State::Failed))]).unwrap();

        let mut results = Results::read(&file).unwrap();
        let all = [a.clone(), b.clone(), c];
        assert_eq!(results.count(&all), [1, 1, 0]);
        assert_eq!(results.get("a"), Some(&outcome(State::Passed)));
        results.forget(&[b]).unwrap();
        assert_eq!(Results::read(&file).unwrap().count(&all), [1, 0, 0]);
        fs::write(&file, "{").unwrap();
        assert!(Results::read(&file).is_err());
    }
}
