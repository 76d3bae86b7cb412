//! Which pod or container a person means.

use std::{collections::BTreeSet, fmt};

use crate::identity::Identity;

/// As many candidates are named.
const NAMED: usize = 16;

/// A pod or container that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sought {
    /// Every sandbox of a pod, and its containers, by `namespace/name`.
    Pod(String),
    /// One sandbox and its containers, by id, with the pod's name.
    Sandbox { id: String, pod: String },
    /// Every container of this name in a pod.
    Container { pod: String, name: String },
    /// One container, by id, with the names of its pod and itself.
    ContainerId { id: String, pod: String, name: String },
}

/// Why nobody can say what is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// Nothing is called so.
    Unknown(String),
    /// More than one is.
    Ambiguous(String, Vec<Sought>),
}

impl Sought {
    /// Whether a record is about it.
    pub(crate) fn matches(&self, identity: &Identity) -> bool {
        match self {
            Self::Pod(pod) => identity.pod == *pod,
            Self::Sandbox { id, .. } => identity.pod_id.as_ref() == Some(id),
            Self::Container { pod, name } => {
                identity.pod == *pod && identity.container.as_ref() == Some(name)
            }
            Self::ContainerId { id, .. } => identity.container_id.as_ref() == Some(id),
        }
    }

    fn sandbox(identity: &Identity) -> Option<Self> {
        let (id, pod) = (identity.pod_id.clone()?, identity.pod.clone());
        Some(Self::Sandbox { id, pod })
    }

    fn container_id(identity: &Identity) -> Option<Self> {
        let (id, pod) = (identity.container_id.clone()?, identity.pod.clone());
        Some(Self::ContainerId { id, pod, name: identity.container.clone().unwrap_or_default() })
    }

    fn container(identity: &Identity) -> Option<Self> {
        Some(Self::Container { pod: identity.pod.clone(), name: identity.container.clone()? })
    }
}

/// What `name` means among these. Ids come before names, and names before beginnings of ids.
pub(super) fn find<'a>(
    name: &str,
    known: impl Iterator<Item = &'a Identity> + Clone,
) -> Result<Sought, Miss> {
    let is_whole = |id: &Option<String>| id.as_deref() == Some(name);
    if let Some(identity) = known.clone().find(|it| is_whole(&it.container_id))
        && let Some(sought) = Sought::container_id(identity)
    {
        return Ok(sought);
    }
    if let Some(identity) = known.clone().find(|it| is_whole(&it.pod_id))
        && let Some(sought) = Sought::sandbox(identity)
    {
        return Ok(sought);
    }
    if let Some(found) = one(name, named(name, known.clone())) {
        return found;
    }
    let begins = |id: &Option<String>| id.as_ref().is_some_and(|id| id.starts_with(name));
    let mut begun = BTreeSet::new();
    if !name.is_empty() {
        let sandboxes = known.clone().filter(|it| begins(&it.pod_id)).filter_map(Sought::sandbox);
        begun.extend(sandboxes);
        let containers = known.filter(|it| begins(&it.container_id));
        begun.extend(containers.filter_map(Sought::container_id));
    }
    one(name, begun).unwrap_or_else(|| Err(Miss::Unknown(name.to_owned())))
}

/// Those that have this name. A container that is named as its own pod is part of it.
fn named<'a>(name: &str, known: impl Iterator<Item = &'a Identity> + Clone) -> BTreeSet<Sought> {
    if let Some((pod, container)) = name.rsplit_once('/')
        && pod.contains('/')
    {
        let is_it = |it: &&Identity| it.pod == pod && it.container.as_deref() == Some(container);
        return known.filter(is_it).filter_map(Sought::container).collect();
    }
    let pods = known.clone().filter(|it| !it.pod.is_empty());
    let pods = pods.filter(|it| it.pod == name || it.pod_parts().1 == name);
    let mut found: BTreeSet<_> = pods.map(|it| Sought::Pod(it.pod.clone())).collect();
    let containers = known.filter(|it| it.container.as_deref() == Some(name));
    let apart: Vec<_> = containers
        .filter(|it| !found.contains(&Sought::Pod(it.pod.clone())))
        .filter_map(Sought::container)
        .collect();
    found.extend(apart);
    found
}

/// The only one; nothing if there is none.
fn one(name: &str, found: BTreeSet<Sought>) -> Option<Result<Sought, Miss>> {
    let mut found: Vec<_> = found.into_iter().collect();
    match found.len() {
        0 => None,
        1 => found.pop().map(Ok),
        _ => Some(Err(Miss::Ambiguous(name.to_owned(), found))),
    }
}

impl fmt::Display for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(pod) => write!(f, "pod {pod}"),
            Self::Sandbox { id, pod } => write!(f, "pod {pod}, sandbox {id}"),
            Self::Container { pod, name } => write!(f, "container {pod}/{name}"),
            Self::ContainerId { id, pod, name } => write!(f, "container {pod}/{name}, id {id}"),
        }
    }
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, candidates) = match self {
            Self::Unknown(name) => return write!(f, "no hook call about {name:?} is kept"),
            Self::Ambiguous(name, candidates) => (name, candidates),
        };
        write!(
            f,
            "{name:?} is the name of more than one; name one of them by id, or as namespace/pod"
        )?;
        f.write_str(" or namespace/pod/container:")?;
        for (number, candidate) in candidates.iter().take(NAMED).enumerate() {
            write!(f, "{} {candidate}", if number == 0 { "" } else { ";" })?;
        }
        match candidates.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
