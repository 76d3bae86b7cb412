//! Answers of servers that change only what they name.
//!
//! The protocol cannot tell an unset number or text from zero or an empty one, so that neither is a
//! wish here. What shall go is named in the answer's removals. A wish that no request can carry is
//! an error with the name of the field: a server that relies on it has to know.

use wharf_proto::hooks::{
    ContainerResourceHookRequest, ContainerResourceHookResponse,
    LinuxContainerResources as Resources, PodSandboxHookRequest, PodSandboxHookResponse, Removals,
};

use crate::{
    HookPoint,
    edit::{Amount, Cpuset, Edit, Field, Value},
    map::{self, Map},
    pod,
};

/// A wish that no request can carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its answer cannot be applied: {field}: {reason}")]
pub(crate) struct Inexpressible {
    pub(crate) field: String,
    pub(crate) reason: &'static str,
}

type Edits = Result<Vec<Edit>, Inexpressible>;

/// What an answer before RunPodSandbox changes.
pub(crate) fn of_pod(sent: &PodSandboxHookRequest, answer: &PodSandboxHookResponse) -> Edits {
    let nothing = Removals::default();
    let removals = answer.removals.as_ref().unwrap_or(&nothing);
    let Removals { labels, annotations, envs, unified, cpuset_cpus, cpuset_mems } = removals;
    refuse("removals.envs", "a pod has none", !envs.is_empty())?;
    refuse("removals.unified", NO_RESOURCES, !unified.is_empty())?;
    refuse("removals.cpuset_cpus", NO_RESOURCES, *cpuset_cpus)?;
    refuse("removals.cpuset_mems", NO_RESOURCES, *cpuset_mems)?;
    let resources = answer.resources.as_ref();
    let is_echo = resources.is_none_or(|own| *own == Resources::default())
        || answer.resources == sent.resources;
    refuse("resources", NO_RESOURCES, !is_echo)?;
    let mut edits = keys(&sent.labels, &answer.labels, labels, Field::Label)?;
    edits.extend(keys(&sent.annotations, &answer.annotations, annotations, Field::Annotation)?);
    edits.extend(pod::moved(&sent.cgroup_parent, &answer.cgroup_parent));
    Ok(edits)
}

const NO_RESOURCES: &str = "RunPodSandbox has no resources that a hook can change";

/// What an answer about a container changes at `point`.
pub(crate) fn of_container(
    point: HookPoint,
    sent: &ContainerResourceHookRequest,
    answer: &ContainerResourceHookResponse,
) -> Edits {
    let nothing = Removals::default();
    let removals = answer.removals.as_ref().unwrap_or(&nothing);
    refuse(
        "removals.labels",
        "labels of a container cannot be changed",
        !removals.labels.is_empty(),
    )?;
    let (before, answered) = (&sent.container_annotations, &answer.container_annotations);
    let mut edits = keys(before, answered, &removals.annotations, Field::Annotation)?;
    let (before, answered) = (&sent.container_envs, &answer.container_envs);
    edits.extend(keys(before, answered, &removals.envs, Field::Env)?);
    edits.extend(pod::moved(&sent.pod_cgroup_parent, &answer.pod_cgroup_parent));
    let none = Resources::default();
    let before = sent.container_resources.as_ref().unwrap_or(&none);
    let answered = answer.container_resources.as_ref().unwrap_or(&none);
    edits.extend(resources(before, answered, removals)?);
    match edits.iter().find_map(|edit| Some((edit, unreachable(point, edit)?))) {
        Some((edit, reason)) => Err(Inexpressible { field: edit.field.to_string(), reason }),
        None => Ok(edits),
    }
}

/// Why a change cannot reach the runtime at this point, if it cannot.
fn unreachable(point: HookPoint, edit: &Edit) -> Option<&'static str> {
    match (point, &edit.field) {
        (HookPoint::PreCreateContainer, _) => None,
        (HookPoint::PreUpdateContainerResources, Field::Env(_)) => {
            Some("the environment of a container that is there cannot be changed")
        }
        (HookPoint::PreUpdateContainerResources, Field::CgroupParent) => {
            Some("the cgroup of a container that is there cannot be changed")
        }
        (HookPoint::PreUpdateContainerResources, Field::Cpuset(_))
            if edit.to.text() == Some("") =>
        {
            Some("an update cannot clear a cpuset: name all CPUs or memory nodes")
        }
        (HookPoint::PreUpdateContainerResources, _) => None,
        _ => Some("a start carries nothing to the runtime"),
    }
}

fn resources(sent: &Resources, answer: &Resources, removals: &Removals) -> Edits {
    refuse(
        "hugepage_limits",
        "no hook can change them",
        // A server may repeat them in any order.
        !answer.hugepage_limits.iter().all(|limit| sent.hugepage_limits.contains(limit)),
    )?;
    let mut edits = Vec::new();
    for amount in Amount::ALL {
        let (from, to) = (amount.of(sent), amount.of(answer));
        if to == 0 || to == from {
            continue;
        }
        let field = Field::Amount(amount);
        if let Some(reason) = amount.fault(to) {
            return Err(Inexpressible { field: field.to_string(), reason });
        }
        edits.push(Edit { field, from: Value::Number(from), to: Value::Number(to) });
    }
    for (cpuset, is_removed) in
        [(Cpuset::Cpus, removals.cpuset_cpus), (Cpuset::Mems, removals.cpuset_mems)]
    {
        let (from, to) = (cpuset.of(sent), cpuset.of(answer));
        let field = Field::Cpuset(cpuset);
        refuse(&field.to_string(), BOTH, is_removed && !to.is_empty() && to != from)?;
        let to = if is_removed { "" } else { to };
        if from != to && (is_removed || !to.is_empty()) {
            let text = |text: &str| Value::Text(text.to_owned());
            edits.push(Edit { field, from: text(from), to: text(to) });
        }
    }
    edits.extend(keys(&sent.unified, &answer.unified, &removals.unified, Field::Unified)?);
    Ok(edits)
}

const BOTH: &str = "it is both set and removed";

/// What an answer changes of texts by key.
fn keys(sent: &Map, answer: &Map, removed: &[String], field: fn(String) -> Field) -> Edits {
    // A server may repeat all that it was sent.
    let is_set = |key: &&String| answer.contains_key(*key) && answer.get(*key) != sent.get(*key);
    if let Some(key) = removed.iter().find(is_set) {
        return Err(Inexpressible { field: field(key.clone()).to_string(), reason: BOTH });
    }
    let set = map::merged(sent, answer, field);
    let gone = removed.iter().filter_map(|key| {
        let from = sent.get(key)?;
        let from = Value::Text(from.clone());
        Some(Edit { field: field(key.clone()), from, to: Value::Absent })
    });
    Ok(set.chain(gone).collect())
}

fn refuse(field: &str, reason: &'static str, is_wished: bool) -> Result<(), Inexpressible> {
    match is_wished {
        true => Err(Inexpressible { field: field.to_owned(), reason }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
