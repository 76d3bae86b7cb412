use serde::{Deserialize, Deserializer};

use super::{Index, IndexedBy, Kind, Meta};

/// A Pod with its claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// The metadata.
    pub metadata: Meta,
    /// The spec.
    pub spec: PodSpec,
    /// The status.
    pub status: PodStatus,
}

/// The spec of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodSpec {
    /// The names of its claims, in its own namespace.
    #[serde(rename = "volumes", deserialize_with = "claims")]
    pub claims: Box<[Box<str>]>,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// Whether all containers have ended for good.
    #[serde(rename = "phase", deserialize_with = "ended")]
    pub ended: bool,
}

impl Pod {
    /// Index by the keys of the claims.
    pub const BY_CLAIM: Index = Index(0);

    /// The keys of the claims.
    pub fn claim_keys(&self) -> impl Iterator<Item = String> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        self.spec.claims.iter().map(move |claim| format!("{namespace}/{claim}"))
    }
}

impl Kind for Pod {
    const KIND: &'static str = "Pod";
    const GROUP: &'static str = "/api/v1";
    const RESOURCE: &'static str = "pods";
    const INDEXES: &'static [IndexedBy<Self>] =
        &[|pod, found| pod.claim_keys().for_each(|claim| found(&claim))];

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

fn claims<'de, D: Deserializer<'de>>(source: D) -> Result<Box<[Box<str>]>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Volume {
        persistent_volume_claim: Option<Claim>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Claim {
        claim_name: Box<str>,
    }
    let volumes = Option::<Vec<Volume>>::deserialize(source)?.unwrap_or_default();
    let claims = volumes.into_iter().filter_map(|volume| volume.persistent_volume_claim);
    Ok(claims.map(|claim| claim.claim_name).collect())
}

fn ended<'de, D: Deserializer<'de>>(source: D) -> Result<bool, D::Error> {
    let phase = Option::<String>::deserialize(source)?;
    Ok(matches!(phase.as_deref(), Some("Succeeded" | "Failed")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n" },
            "spec": { "containers": [{ "name": "c" }], "volumes": [
                { "name": "token", "projected": { "sources": [] } },
                { "name": "data", "persistentVolumeClaim": { "claimName": "a", "readOnly": true } },
                { "name": "logs", "persistentVolumeClaim": { "claimName": "b" } },
            ]},
            "status": { "phase": phase, "podIP": "10.0.0.1" },
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_is_found_by_its_claims() {
        let mut found = Vec::new();
        Pod::INDEXES[0](&pod("Running"), &mut |key| found.push(key.to_owned()));
        assert_eq!(found, ["n/a", "n/b"]);
    }

    #[test]
    fn a_pod_ends_well_or_badly() {
        let ended = ["Pending", "Running", "Unknown", "Succeeded", "Failed"]
            .map(|phase| pod(phase).status.ended);
        assert_eq!(ended, [false, false, false, true, true]);
        assert!(!serde_json::from_str::<Pod>("{}").unwrap().status.ended);
    }

    #[test]
    fn a_pod_takes_little() {
        assert!(size_of::<Pod>() <= 192, "{}", size_of::<Pod>());
    }
}
