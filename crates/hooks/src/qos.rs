//! The QoS class of a pod.

use std::fmt;
use std::str::FromStr;

/// How Kubernetes ranks a pod. No call of the runtime interface says it, so it is read from what kubelet derives from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QosClass {
    /// Every container's limits are its requests.
    Guaranteed,
    /// Something is requested.
    Burstable,
    /// Nothing is.
    BestEffort,
}

impl QosClass {
    /// From the cgroup that kubelet puts a pod into, of either driver: `/kubepods/burstable/pod<uid>` or
    /// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`. None for any other place.
    pub(crate) fn of_cgroup(parent: &str) -> Option<QosClass> {
        let parts = parent.split('/').map(|part| part.strip_suffix(".slice").unwrap_or(part));
        let mut words =
            parts.flat_map(|part| part.split('-')).skip_while(|word| *word != "kubepods");
        words.find_map(|word| match word {
            "besteffort" => Some(QosClass::BestEffort),
            "burstable" => Some(QosClass::Burstable),
            word if word.starts_with("pod") => Some(QosClass::Guaranteed),
            _ => None,
        })
    }

    /// From the score that kubelet gives a container. Guaranteed pods share theirs with critical ones of any class, so
    /// that one tells nothing.
    pub(crate) fn of_oom_score(adj: i64) -> Option<QosClass> {
        match adj {
            2..=999 => Some(QosClass::Burstable),
            1000 => Some(QosClass::BestEffort),
            _ => None,
        }
    }

    /// The name, as the API has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
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

    fn from_str(text: &str) -> Result<QosClass, &'static str> {
        [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort]
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
