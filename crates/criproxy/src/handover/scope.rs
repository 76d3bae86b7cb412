//! What a call is about, and which calls must not be under way in two processes at once.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{id, intercept, intercept::Method, pod, record, record::Records};

/// What an intercepted call is about. Ids may be the beginnings of ids, which is all that some
/// callers give.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    /// A pod that is being made, by namespace and name.
    NewPod(String),
    /// A pod, with all of its containers.
    Pod(String),
    /// A container that is being made in this pod.
    NewContainer(String),
    /// A container, and its pod, if that is known.
    Container { id: String, pod: Option<String> },
}

impl Scope {
    /// What the message of a call is about; `None` if it cannot be read.
    pub(crate) fn of(method: Method, message: &Bytes, records: &Records) -> Option<Self> {
        let id = || id::of(message).ok();
        Some(match method {
            Method::RunPodSandbox => Self::NewPod(record::full_name(&pod::asked(message).ok()?)),
            Method::RestorePod => {
                let run = intercept::run_of(message).ok()?;
                Self::NewPod(record::full_name(&pod::asked(&run).ok()?))
            }
            Method::StopPodSandbox | Method::RemovePodSandbox => Self::Pod(id()?),
            Method::CreateContainer => Self::NewContainer(id()?),
            Method::StartContainer
            | Method::UpdateContainerResources
            | Method::StopContainer
            | Method::RemoveContainer => {
                let id = id()?;
                Self::Container { pod: records.pod_of(&id), id }
            }
        })
    }

    /// Whether a call about this has to wait for one about `other`.
    pub(crate) fn conflicts_with(&self, other: &Scope) -> bool {
        use Scope::{Container, NewContainer, NewPod, Pod};
        match (self, other) {
            (NewPod(a), NewPod(b)) => a == b,
            (Pod(a), Pod(b) | NewContainer(b)) | (NewContainer(a), Pod(b)) => is_same(a, b),
            (Pod(a), Container { pod, .. }) | (Container { pod, .. }, Pod(a)) => {
                // One that nothing is known of may be in any pod.
                pod.as_ref().is_none_or(|pod| is_same(a, pod))
            }
            (Container { id: a, .. }, Container { id: b, .. }) => is_same(a, b),
            (NewPod(_), _) | (_, NewPod(_)) | (NewContainer(_), _) | (_, NewContainer(_)) => false,
        }
    }
}

/// Whether two ids, or beginnings of ids, may be those of one thing.
fn is_same(a: &str, b: &str) -> bool {
    !a.is_empty() && !b.is_empty() && (a.starts_with(b) || b.starts_with(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(id: &str, pod: &str) -> Scope {
        let pod = Some(pod.to_owned()).filter(|pod| !pod.is_empty());
        Scope::Container { id: id.to_owned(), pod }
    }

    #[test]
    fn a_pod_waits_for_its_containers_and_they_for_it_but_not_for_each_other() {
        let pod = |id: &str| Scope::Pod(id.to_owned());
        let new = |id: &str| Scope::NewContainer(id.to_owned());
        let named = |name: &str| Scope::NewPod(name.to_owned());
        let pairs = [
            (pod("p1"), pod("p1"), true),
            (pod("p1"), pod("p"), true),
            (pod("p1"), pod("p2"), false),
            (pod("p1"), pod(""), false),
            (pod("p1"), container("c1", "p1"), true),
            (pod("p1"), container("c1", "p2"), false),
            (pod("p1"), container("c1", ""), true),
            (pod("p1"), new("p1"), true),
            (new("p1"), new("p1"), false),
            (new("p1"), container("c1", "p1"), false),
            (container("c1", "p1"), container("c2", "p1"), false),
            (container("c1", "p1"), container("c", ""), true),
            (named("n/a"), named("n/a"), true),
            (named("n/a"), named("n/b"), false),
            (named("n/a"), pod("n/a"), false),
        ];
        for (a, b, expected) in pairs {
            assert_eq!(a.conflicts_with(&b), expected, "{a:?} {b:?}");
            assert_eq!(b.conflicts_with(&a), expected, "{b:?} {a:?}");
        }
    }
}
