//! Reads a file of rules, and checks it as a whole.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_saphyr::Options;
use wharf_criproxy::trust_file;
use wharf_hooks::{
    Container, HookPoint, PodSandbox,
    adjustment::{ContainerAdjustment, PodAdjustment, ResourceAdjustment},
};

use super::rule::Rule;

/// The valid rules of a file.
pub(super) struct Rules(Vec<Rule>);

/// Why a file of rules is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum RulesError {
    #[error("cannot read the rules {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot parse the rules {}: {}", .0.display(), .1)]
    Untrusted(PathBuf, String),
    #[error("{}: {}", .0.display(), .1.join("; "))]
    Unsound(PathBuf, Vec<String>),
}

impl Rules {
    pub(super) async fn load(path: &Path) -> Result<Self, RulesError> {
        let own = path.to_owned();
        let text = tokio::task::spawn_blocking(move || text(own)).await;
        let failed = |error| RulesError::Read(path.to_owned(), io::Error::from(error));
        Rules::parse(path, &text.map_err(failed).flatten()?)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, RulesError> {
        let Rules(rules) =
            read(text).map_err(|mistake| RulesError::Unsound(path.to_owned(), vec![mistake]))?;
        let mut mistakes = Vec::new();
        let mut names = BTreeSet::new();
        for (index, rule) in rules.iter().enumerate() {
            let known = (rule.name.is_empty() || !names.insert(&rule.name))
                .then(|| "name: expected a name that no other rule has".to_owned());
            for mistake in known.into_iter().chain(rule.mistakes()) {
                mistakes.push(format!("rule {:?}: rules[{index}].{mistake}", rule.name));
            }
        }
        if mistakes.is_empty() {
            Ok(Rules(rules))
        } else {
            Err(RulesError::Unsound(path.to_owned(), mistakes))
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The hooks at which the proxy must call the server, so that every rule applies.
    pub(super) fn points(&self) -> BTreeSet<HookPoint> {
        let points = |rule: &Rule| {
            let changes = [
                (
                    HookPoint::PreRunPodSandbox,
                    rule.sandbox(PodAdjustment::new()) != PodAdjustment::new(),
                ),
                (
                    HookPoint::PreCreateContainer,
                    rule.container(ContainerAdjustment::new()) != ContainerAdjustment::new(),
                ),
                (
                    HookPoint::PreUpdateContainerResources,
                    rule.resources(ResourceAdjustment::new()) != ResourceAdjustment::new(),
                ),
            ];
            changes.into_iter().filter_map(|(point, changed)| changed.then_some(point))
        };
        self.0.iter().flat_map(points).collect()
    }

    pub(super) fn sandbox(&self, sandbox: &PodSandbox) -> PodAdjustment {
        let (pod, qos) = (&sandbox.pod, sandbox.pod.qos());
        let rules = self.0.iter().filter(|rule| rule.is_for_pod(pod, qos));
        rules.fold(PodAdjustment::new(), |to, rule| rule.sandbox(to))
    }

    pub(super) fn container(&self, container: &Container) -> ContainerAdjustment {
        self.matching(container).fold(ContainerAdjustment::new(), |to, rule| rule.container(to))
    }

    pub(super) fn resources(&self, container: &Container) -> ResourceAdjustment {
        self.matching(container).fold(ResourceAdjustment::new(), |to, rule| rule.resources(to))
    }

    fn matching<'a>(&'a self, container: &'a Container) -> impl Iterator<Item = &'a Rule> {
        let (pod, qos) = (&container.pod, container.qos());
        self.0.iter().filter(move |rule| rule.is_for_container(pod, qos, &container.name))
    }
}

/// The file's text, if only root and our own user can change the file. Blocks.
fn text(path: PathBuf) -> Result<String, RulesError> {
    match std::fs::read_to_string(&path) {
        Ok(text) => match trust_file(&path) {
            Ok(()) => Ok(text),
            Err(why) => Err(RulesError::Untrusted(path, why)),
        },
        Err(error) => Err(RulesError::Read(path, error)),
    }
}

/// The parsed rules, or the key that is wrong, with its line.
fn read(text: &str) -> Result<Rules, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        rules: Vec<Rule>,
    }
    // A snippet of the file could show a secret.
    let mut options = Options::default();
    options.with_snippet = false;
    let mut key = None;
    let file = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        serde_path_to_error::deserialize::<_, File>(yaml).map_err(|error| {
            key = Some(error.path().to_string()).filter(|path| path != ".");
            error.into_inner()
        })
    });
    file.map(|File { rules }| Rules(rules)).map_err(|error| match key {
        Some(key) => format!("{key}: {error}"),
        None => error.to_string(),
    })
}

#[cfg(test)]
mod tests;
