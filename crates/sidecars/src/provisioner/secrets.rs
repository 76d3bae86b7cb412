//! The secrets that a class names for its volumes.

use wharf_cluster::{Attributes, SecretReference};
use wharf_facts::{
    context,
    validation::{is_label, is_subdomain},
};

use crate::template::expand;

/// The use of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretKind {
    Provisioner,
    ControllerPublish,
    NodeStage,
    NodePublish,
    ControllerExpand,
    NodeExpand,
    ControllerModify,
    /// The default for uses without a secret of their own.
    Default,
}

/// Values for templates of names of secrets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) volume: &'a str,
    pub(super) claim: &'a str,
    pub(super) namespace: &'a str,
    /// All annotations of the claim, if [`wants_annotations`].
    pub(super) annotations: &'a Attributes,
}

/// Why parameters do not name a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SecretRefusal {
    #[error(
        "failed to get name and namespace template from params: {kind} secrets specified in parameters with both \
         \"csi\" and \"{prefix}\" keys",
        prefix = context::PREFIX
    )]
    Twice { kind: &'static str },
    #[error(
        "failed to get name and namespace template from params: either name and namespace for {kind} secrets \
         specified, Both must be specified"
    )]
    Half { kind: &'static str },
    #[error(
        "failed to get name and namespace template from params: {kind} secrets specified in parameters but value of \
         either namespace or name is empty"
    )]
    Empty { kind: &'static str },
    #[error("error resolving value {template:?}: invalid tokens: [{}]", tokens.join(" "))]
    Tokens { template: String, tokens: Vec<String> },
    #[error("{template:?} resolved to {resolved:?} which is not a valid {what} name")]
    Resolved { template: String, resolved: String, what: &'static str },
    #[error("{template:?} is not a valid {what} name")]
    Invalid { template: String, what: &'static str },
}

impl SecretKind {
    const ALL: [Self; 8] = [
        Self::Provisioner,
        Self::ControllerPublish,
        Self::NodeStage,
        Self::NodePublish,
        Self::ControllerExpand,
        Self::NodeExpand,
        Self::ControllerModify,
        Self::Default,
    ];

    /// Whether a parameter with Kubernetes' prefix names part of a secret.
    pub(super) fn has_key(key: &str) -> bool {
        Self::ALL.iter().any(|kind| [kind.key("name"), kind.key("namespace")].contains(&key.into()))
    }

    fn key(self, part: &str) -> String {
        let kind = match self {
            Self::Provisioner => "provisioner-",
            Self::ControllerPublish => "controller-publish-",
            Self::NodeStage => "node-stage-",
            Self::NodePublish => "node-publish-",
            Self::ControllerExpand => "controller-expand-",
            Self::NodeExpand => "node-expand-",
            Self::ControllerModify => "controller-modify-",
            Self::Default => "",
        };
        format!("{}{kind}secret-{part}", context::PREFIX)
    }

    /// The key without a prefix, from before prefixes existed; the driver gets it as well.
    fn deprecated_key(self, part: &str) -> Option<String> {
        let newer = [Self::ControllerExpand, Self::NodeExpand, Self::ControllerModify];
        let deprecated = self != Self::Default && !newer.contains(&self);
        deprecated.then(|| format!("csi{}Secret{part}", self.title()))
    }

    fn title(self) -> &'static str {
        match self {
            Self::Provisioner => "Provisioner",
            Self::ControllerPublish => "ControllerPublish",
            Self::NodeStage => "NodeStage",
            Self::NodePublish => "NodePublish",
            Self::ControllerExpand => "ControllerExpand",
            Self::NodeExpand => "NodeExpand",
            Self::ControllerModify => "ControllerModify",
            Self::Default => "Default",
        }
    }

    /// The secret that the class names for this use, or by default.
    pub(super) fn reference(
        self,
        parameters: &Attributes,
        subject: Subject<'_>,
    ) -> Result<Option<SecretReference>, SecretRefusal> {
        let templates = match self.templates(parameters)? {
            None => Self::Default.templates(parameters)?,
            own => own,
        };
        let Some((name, namespace)) = templates else { return Ok(None) };
        let namespace = resolve(namespace, "namespace", is_label, |token| match token {
            "pv.name" => Some(subject.volume.to_owned()),
            "pvc.namespace" => Some(subject.namespace.to_owned()),
            _ => None,
        })?;
        let name = resolve(name, "secret", is_subdomain, |token| match token {
            "pv.name" => Some(subject.volume.to_owned()),
            "pvc.name" => Some(subject.claim.to_owned()),
            "pvc.namespace" => Some(subject.namespace.to_owned()),
            token => subject.annotations.get(annotation(token)?).map(str::to_owned),
        })?;
        Ok(Some(SecretReference { name, namespace }))
    }

    /// Templates of name and namespace.
    fn templates(self, parameters: &Attributes) -> Result<Option<(&str, &str)>, SecretRefusal> {
        let kind = self.title();
        let find = |part: &str, deprecated: &str| {
            let older = self.deprecated_key(deprecated).and_then(|key| parameters.get(&key));
            match (older, parameters.get(&self.key(part))) {
                (Some(_), Some(_)) => Err(SecretRefusal::Twice { kind }),
                (older, newer) => Ok(older.or(newer)),
            }
        };
        match (find("name", "Name")?, find("namespace", "Namespace")?) {
            (None, None) => Ok(None),
            (Some(""), Some(_)) | (Some(_), Some("")) => Err(SecretRefusal::Empty { kind }),
            (Some(name), Some(namespace)) => Ok(Some((name, namespace))),
            _ => Err(SecretRefusal::Half { kind }),
        }
    }
}

/// Whether names of secrets contain the claim's annotations, which caches do not keep.
pub(super) fn wants_annotations(parameters: &Attributes) -> bool {
    parameters.iter().any(|(_, value)| value.contains(ANNOTATION))
}

const ANNOTATION: &str = "pvc.annotations['";

/// The annotation that a token names.
fn annotation(token: &str) -> Option<&str> {
    token.strip_prefix(ANNOTATION)?.strip_suffix("']")
}

fn resolve(
    template: &str,
    what: &'static str,
    is_valid: fn(&str) -> bool,
    value: impl Fn(&str) -> Option<String>,
) -> Result<String, SecretRefusal> {
    let resolved = expand(template, value).map_err(|tokens| SecretRefusal::Tokens {
        template: template.to_owned(),
        tokens: tokens.iter().map(|token| format!("{token:?}")).collect(),
    })?;
    let template = template.to_owned();
    if is_valid(&resolved) {
        Ok(resolved)
    } else if resolved == template {
        Err(SecretRefusal::Invalid { template, what })
    } else {
        Err(SecretRefusal::Resolved { template, resolved, what })
    }
}

#[cfg(test)]
mod tests;
