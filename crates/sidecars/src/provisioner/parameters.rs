//! The parameters of a class: Kubernetes' own, and those for the driver.

use std::collections::BTreeMap;

use wharf_cluster::Attributes;
use wharf_facts::context::{self, FS_TYPE};

use super::{failure::ProvisionRefusal, secrets::SecretKind};

/// The filesystem of the class, or else the default.
pub(super) fn fs_type(parameters: &Attributes, default: &str) -> Result<String, ProvisionRefusal> {
    let mut found =
        parameters.iter().filter(|(key, _)| key.eq_ignore_ascii_case("fstype") || *key == FS_TYPE);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(ProvisionRefusal::TwoFsTypes),
        (Some((_, fs_type)), None) if !fs_type.is_empty() => Ok(fs_type.to_owned()),
        _ => Ok(default.to_owned()),
    }
}

/// The parameters for the driver. Keys with Kubernetes' prefix are removed, and unknown ones are an
/// error.
pub(super) fn for_driver(
    parameters: &Attributes,
) -> Result<BTreeMap<String, String>, ProvisionRefusal> {
    let mut kept = BTreeMap::new();
    for (key, value) in parameters.iter() {
        match key.strip_prefix(context::PREFIX) {
            None => drop(kept.insert(key.to_owned(), value.to_owned())),
            Some(_) if key == FS_TYPE || SecretKind::has_key(key) => {}
            Some(_) => return Err(ProvisionRefusal::UnknownParameter(key.to_owned())),
        }
    }
    Ok(kept)
}

/// The names of the claim and its volume, for drivers that use them.
pub(super) fn extra_metadata<'a>(
    claim: &'a str,
    namespace: &'a str,
    volume: &'a str,
) -> [(&'static str, &'a str); 3] {
    [(context::PVC_NAME, claim), (context::PVC_NAMESPACE, namespace), (context::PV_NAME, volume)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> Attributes {
        pairs.iter().copied().collect()
    }

    #[test]
    fn a_filesystem_has_one_key_in_any_case() {
        let asked = |pairs: &[(&str, &str)]| fs_type(&parameters(pairs), "ext4");
        assert_eq!(asked(&[]).unwrap(), "ext4");
        assert_eq!(asked(&[("fsType", "xfs")]).unwrap(), "xfs");
        assert_eq!(asked(&[(FS_TYPE, "xfs")]).unwrap(), "xfs");
        assert_eq!(asked(&[("fstype", "")]).unwrap(), "ext4");
        assert_eq!(asked(&[("csi.storage.k8s.io/FSTYPE", "xfs")]).unwrap(), "ext4");
        assert_eq!(
            asked(&[("fstype", "xfs"), (FS_TYPE, "xfs")]),
            Err(ProvisionRefusal::TwoFsTypes)
        );
        assert_eq!(asked(&[("fstype", "xfs"), ("FSTYPE", "")]), Err(ProvisionRefusal::TwoFsTypes));
    }

    #[test]
    fn what_is_kubernetes_own_is_not_told() {
        let prefix = context::PREFIX;
        let mut own = vec![FS_TYPE.to_owned()];
        for kind in ["", "provisioner-", "controller-publish-", "node-stage-", "node-publish-"]
            .into_iter()
            .chain(["controller-expand-", "node-expand-", "controller-modify-"])
        {
            own.extend(["name", "namespace"].map(|part| format!("{prefix}{kind}secret-{part}")));
        }
        let all = own.iter().map(|key| (key.as_str(), "x"));
        let deprecated = [("csiProvisionerSecretName", "s"), ("fstype", "xfs"), ("tier", "fast")];
        let kept = for_driver(&all.chain(deprecated).collect()).unwrap();
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["csiProvisionerSecretName", "fstype", "tier"]);
        let wrong = for_driver(&parameters(&[("csi.storage.k8s.io/pvc/name", "x")])).unwrap_err();
        let expected = "failed to strip CSI Parameters of prefixed keys: found unknown parameter key \
            \"csi.storage.k8s.io/pvc/name\" with reserved namespace csi.storage.k8s.io/";
        assert_eq!(wrong.to_string(), expected);
    }
}
