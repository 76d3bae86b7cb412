//! Which calls a tap shows.

use serde::{Deserialize, Serialize};

use super::TapCall;

/// The calls that a reader wants: those that match one of each kind that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TapFilter {
    /// Names of methods, with or without their service, in any case.
    pub methods: Vec<String>,
    /// Names of pods, with or without their namespace, or the beginning of a sandbox's id.
    pub pods: Vec<String>,
    /// Namespaces.
    pub namespaces: Vec<String>,
    /// Names of containers, or the beginning of an id.
    pub containers: Vec<String>,
}

impl TapFilter {
    pub(super) fn wants(&self, call: &TapCall) -> bool {
        let identity = &call.identity;
        let (namespace, pod) = identity.pod_parts();
        let begins = |id: &Option<String>, wanted: &str| {
            !wanted.is_empty() && id.as_ref().is_some_and(|id| id.starts_with(wanted))
        };
        any(&self.methods, |wanted| is_method(&call.method, wanted))
            && any(&self.namespaces, |wanted| !identity.pod.is_empty() && wanted == namespace)
            && any(&self.pods, |wanted| {
                !identity.pod.is_empty() && (wanted == pod || wanted == identity.pod)
                    || begins(&identity.pod_id, wanted)
            })
            && any(&self.containers, |wanted| {
                identity.container.as_deref() == Some(wanted)
                    || begins(&identity.container_id, wanted)
            })
    }
}

/// Whether one of them matches, or there is none.
fn any(wanted: &[String], matches: impl Fn(&str) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| matches(wanted))
}

fn is_method(method: &str, wanted: &str) -> bool {
    let method = method.trim_start_matches('/');
    let name = method.rsplit('/').next().unwrap_or_default();
    let wanted = wanted.trim_start_matches('/');
    wanted.eq_ignore_ascii_case(method) || wanted.eq_ignore_ascii_case(name)
}
