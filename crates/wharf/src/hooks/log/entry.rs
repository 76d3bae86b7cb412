//! The line that is printed for a hook.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use wharf_hooks::{Container, HookPoint, Outcome, Pod, PodSandbox, QosClass, Resources};

/// One hook. Environment variables appear by name and length, annotations by key, because values of
/// either may be secrets.
pub(super) struct Entry<'a> {
    at: Timestamp,
    point: HookPoint,
    pod: &'a Pod,
    qos: Option<QosClass>,
    container: Option<&'a Container>,
    outcome: Option<Outcome>,
}

impl<'a> Entry<'a> {
    pub(super) fn sandbox(
        point: HookPoint,
        sandbox: &'a PodSandbox,
        outcome: Option<Outcome>,
    ) -> Entry<'a> {
        let (at, pod) = (Timestamp::now(), &sandbox.pod);
        Entry { at, point, pod, qos: pod.qos(), container: None, outcome }
    }

    pub(super) fn container(
        point: HookPoint,
        container: &'a Container,
        outcome: Option<Outcome>,
    ) -> Entry<'a> {
        let (at, pod, qos) = (Timestamp::now(), &container.pod, container.qos());
        Entry { at, point, pod, qos, container: Some(container), outcome }
    }

    /// The entry as a JSON object, without keys for missing values.
    pub(super) fn json(&self) -> Value {
        let Pod { namespace, name, uid, labels, annotations, cgroup_parent, .. } = self.pod;
        let annotations: Vec<_> = annotations.keys().collect();
        let mut entry = json!({
            "at": self.at.to_string(),
            "hook": self.point.name(),
            "pod": {
                "namespace": namespace,
                "name": name,
                "uid": uid,
                "labels": labels,
                "annotations": annotations,
                "cgroupParent": cgroup_parent,
                "qos": self.qos.map(QosClass::name),
            },
        });
        if let Some(container) = self.container {
            let resources: Map<_, _> = resources(&container.resources).collect();
            let lengths: Map<_, _> = container
                .env
                .iter()
                .map(|(name, value)| (name.to_owned(), value.len().into()))
                .collect();
            entry["container"] = json!({
                "name": container.name,
                "id": container.id,
                "attempt": container.attempt,
                "annotations": container.annotations.keys().collect::<Vec<_>>(),
                "resources": resources,
                "envLengths": lengths,
            });
        }
        if let Some(Outcome { code, message, duration }) = &self.outcome {
            entry["outcome"] = json!({
                "code": wharf_uds::code_name(*code),
                "message": message,
                "seconds": duration.as_secs_f64(),
            });
        }
        entry
    }
}

impl fmt::Display for Entry<'_> {
    /// The entry as a line of text. Strings that others chose are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespace, name) = (self.pod.namespace.escape_debug(), self.pod.name.escape_debug());
        write!(f, "{:.3} {} {namespace}/{name}", self.at, self.point.name())?;
        if let Some(container) = self.container {
            write!(f, " {}", container.name.escape_debug())?;
        }
        if let Some(qos) = self.qos {
            write!(f, " qos={qos}")?;
        }
        write!(f, " cgroupParent={}", self.pod.cgroup_parent.escape_debug())?;
        list(f, "podAnnotations", self.pod.annotations.keys().cloned())?;
        if let Some(container) = self.container {
            if let Some(id) = &container.id {
                write!(f, " id={}", id.escape_debug())?;
            }
            for (key, value) in resources(&container.resources) {
                write!(f, " {key}={value}")?;
            }
            list(f, "annotations", container.annotations.keys().cloned())?;
            let env = container.env.iter();
            list(f, "env", env.map(|(name, value)| format!("{name}:{}", value.len())))?;
        }
        if let Some(Outcome { code, message, duration }) = &self.outcome {
            write!(f, " outcome={} after={duration:?}", wharf_uds::code_name(*code))?;
            if !message.is_empty() {
                write!(f, " message={message:?}")?;
            }
        }
        Ok(())
    }
}

fn list(f: &mut fmt::Formatter<'_>, key: &str, items: impl Iterator<Item = String>) -> fmt::Result {
    let items: Vec<_> = items.map(|item| item.escape_debug().to_string()).collect();
    if items.is_empty() { Ok(()) } else { write!(f, " {key}=[{}]", items.join(" ")) }
}

/// The requested resources, under the keys of `wharf hooks static`.
fn resources(resources: &Resources) -> impl Iterator<Item = (String, Value)> {
    let numbers = [
        ("cpuShares", resources.cpu_shares),
        ("cpuQuota", resources.cpu_quota),
        ("cpuPeriod", resources.cpu_period),
        ("memory", resources.memory_limit),
        ("memorySwap", resources.memory_swap_limit),
        ("oomScoreAdj", resources.oom_score_adj),
    ];
    let lists = [("cpuset", &resources.cpuset_cpus), ("cpusetMems", &resources.cpuset_mems)];
    let maps = [
        ("unified", json!(resources.unified), resources.unified.is_empty()),
        ("hugepageLimits", json!(resources.hugepage_limits), resources.hugepage_limits.is_empty()),
    ];
    let numbers = numbers.into_iter().filter(|(_, number)| *number != 0);
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let maps = maps.into_iter().filter(|(_, _, empty)| !empty);
    let numbers: Vec<_> = numbers.map(|(key, number)| (key, number.into())).collect();
    let lists: Vec<_> = lists.map(|(key, list)| (key, list.as_str().into())).collect();
    let all = numbers.into_iter().chain(lists).chain(maps.map(|(key, map, _)| (key, map)));
    all.map(|(key, value): (&str, Value)| (key.to_owned(), value))
}
