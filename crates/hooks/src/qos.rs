//! The QoS class of a pod.

use std::{fmt, str::FromStr};

/// Kubernetes' QoS class of a pod. No CRI call carries it, so it is derived from the pod's cgroup
/// or OOM score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QosClass {
    /// The limits of every container equal its requests.
    Guaranteed,
    /// Some container has a request or limit.
    Burstable,
    /// No container has one.
    BestEffort,
}

impl QosClass {
    /// From the cgroup that the kubelet made for a pod, with either cgroup driver:
    /// `/kubepods/burstable/pod<uid>` or
    /// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`. `None` for any
    /// other path.
    pub(crate) fn of_cgroup(parent: &str) -> Option<Self> {
        let parts = parent.split('/').map(|part| part.strip_suffix(".slice").unwrap_or(part));
        let mut words =
            parts.flat_map(|part| part.split('-')).skip_while(|word| *word != "kubepods");
        words.find_map(|word| match word {
            "besteffort" => Some(Self::BestEffort),
            "burstable" => Some(Self::Burstable),
            word if word.starts_with("pod") => Some(Self::Guaranteed),
            _ => None,
        })
    }

    /// From a container's OOM score. `None` for the score of Guaranteed pods, which critical pods
    /// of any class have, too.
    pub(crate) fn of_oom_score(adj: i64) -> Option<Self> {
        match adj {
            2..=999 => Some(Self::Burstable),
            1000 => Some(Self::BestEffort),
            _ => None,
        }
    }

    /// The class's name in the Kubernetes API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for QosClass {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        [Self::Guaranteed, Self::Burstable, Self::BestEffort]
            .into_iter()
            .find(|class| class.name() == text)
            .ok_or("expected Guaranteed, Burstable or BestEffort")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_cgroups() {
        for (parent, class) in [
            ("/kubepods/pod1-2", Some(QosClass::Guaranteed)),
            ("/kubepods/burstable/pod1-2", Some(QosClass::Burstable)),
            ("/kubepods/besteffort/pod1-2", Some(QosClass::BestEffort)),
            ("kubepods-pod1_2.slice", Some(QosClass::Guaranteed)),
            ("kubepods-besteffort-pod1_2.slice", Some(QosClass::BestEffort)),
            ("/kubepods.slice/kubepods-pod1_2.slice", Some(QosClass::Guaranteed)),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
                Some(QosClass::Burstable),
            ),
            ("/own-root/kubepods/besteffort/pod1", Some(QosClass::BestEffort)),
            ("/burstable/pod1", None),
            ("/kubepods", None),
            ("/podman/kubepods", None),
            ("", None),
        ] {
            assert_eq!(QosClass::of_cgroup(parent), class, "{parent}");
        }
    }

    #[test]
    fn names_are_the_apis() {
        assert_eq!("BestEffort".parse(), Ok(QosClass::BestEffort));
        assert!("besteffort".parse::<QosClass>().is_err());
    }
}
