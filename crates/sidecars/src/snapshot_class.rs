//! The parameters of a VolumeSnapshotClass: references to secrets for the sidecars, the rest for
//! the driver.

use std::collections::{BTreeMap, BTreeSet};

use wharf_cluster::{Attributes, SecretReference};
use wharf_facts::validation::{is_label, is_subdomain};

use crate::template::expand;

/// The prefix of keys for sidecars; drivers do not get them.
const RESERVED: &str = "csi.storage.k8s.io/";

/// Keys of secrets: for snapshots, for listing them, for groups and for reading a group.
const SECRETS: [&str; 4] = [
    "snapshotter-secret",
    "snapshotter-list-secret",
    "group-snapshotter-secret",
    "group-snapshotter-get-secret",
];

/// Why parameters are rejected, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParameterError {
    #[error("found unknown parameter key {0:?} with reserved namespace {RESERVED}")]
    Reserved(String),
    #[error(
        "failed to get name and namespace template from params: either name and namespace for \
         {0} secrets specified, Both must be specified"
    )]
    Half(&'static str),
    #[error(
        "failed to get name and namespace template from params: {0} secrets specified in \
         parameters but value of either namespace or name is empty"
    )]
    Empty(&'static str),
    #[error("error resolving value {template:?}: invalid tokens: {tokens:?}")]
    Tokens { template: String, tokens: BTreeSet<String> },
    #[error("{template:?} resolved to {resolved:?} which is not a valid {what} name")]
    Name { what: &'static str, template: String, resolved: String },
}

/// The use of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretUse {
    /// CreateSnapshot and DeleteSnapshot.
    Snapshots,
    /// ListSnapshots.
    List,
}

/// Values for templates. Without a snapshot only the content is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) content: &'a str,
    /// Namespace and name of the snapshot.
    pub(crate) snapshot: Option<(&'a str, &'a str)>,
}

/// The parameters for the driver.
pub(crate) fn driver_parameters(
    parameters: &Attributes,
) -> Result<BTreeMap<String, String>, ParameterError> {
    let mut kept = BTreeMap::new();
    for (key, value) in parameters.iter() {
        match key.strip_prefix(RESERVED) {
            None => drop(kept.insert(key.to_owned(), value.to_owned())),
            Some(own) if is_secret_key(own) => {}
            Some(_) => return Err(ParameterError::Reserved(key.to_owned())),
        }
    }
    Ok(kept)
}

/// The keys that give the names of the API objects to a driver that asks for them.
pub(crate) fn metadata_parameters(
    namespace: &str,
    name: &str,
    content: &str,
) -> [(String, String); 3] {
    [
        ("volumesnapshot/name", name),
        ("volumesnapshot/namespace", namespace),
        ("volumesnapshotcontent/name", content),
    ]
    .map(|(key, value)| (format!("{RESERVED}{key}"), value.to_owned()))
}

/// The secret that the parameters name for this use, if any.
pub(crate) fn secret(
    usage: SecretUse,
    parameters: &Attributes,
    names: Names<'_>,
) -> Result<Option<SecretReference>, ParameterError> {
    let (key, title) = match usage {
        SecretUse::Snapshots => (SECRETS[0], "Snapshotter"),
        SecretUse::List => (SECRETS[1], "SnapshotterList"),
    };
    let given = |part: &str| parameters.get(&format!("{RESERVED}{key}-{part}"));
    let (name, namespace) = match (given("name"), given("namespace")) {
        (None, None) => return Ok(None),
        (Some(""), Some(_)) | (Some(_), Some("")) => return Err(ParameterError::Empty(title)),
        (Some(name), Some(namespace)) => (name, namespace),
        _ => return Err(ParameterError::Half(title)),
    };
    let mut known = vec![("volumesnapshotcontent.name", names.content)];
    if let Some((namespace, _)) = names.snapshot {
        known.push(("volumesnapshot.namespace", namespace));
    }
    let resolved_namespace = resolved("namespace", namespace, &known, is_label)?;
    // Users choose the names of their snapshots, and must not choose a namespace by them.
    if let Some((_, name)) = names.snapshot {
        known.push(("volumesnapshot.name", name));
    }
    let resolved_name = resolved("secret", name, &known, is_subdomain)?;
    Ok(Some(SecretReference { name: resolved_name, namespace: resolved_namespace }))
}

fn is_secret_key(key: &str) -> bool {
    let parts = ["-name", "-namespace"];
    parts.iter().filter_map(|part| key.strip_suffix(part)).any(|key| SECRETS.contains(&key))
}

fn resolved(
    what: &'static str,
    template: &str,
    known: &[(&str, &str)],
    is_valid: fn(&str) -> bool,
) -> Result<String, ParameterError> {
    let value = |token: &str| {
        let (_, value) = known.iter().find(|(name, _)| *name == token)?;
        Some((*value).to_owned())
    };
    let tokens = |tokens| ParameterError::Tokens { template: template.to_owned(), tokens };
    let value = expand(template, value).map_err(tokens)?;
    if is_valid(&value) {
        return Ok(value);
    }
    Err(ParameterError::Name { what, template: template.to_owned(), resolved: value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> Attributes {
        pairs
            .iter()
            .map(|(key, value)| match key.split_once(':') {
                Some((_, own)) => (format!("{RESERVED}{own}"), (*value).to_owned()),
                None => ((*key).to_owned(), (*value).to_owned()),
            })
            .collect()
    }

    #[test]
    fn drivers_get_what_is_not_for_sidecars() {
        let given = parameters(&[
            ("a", "1"),
            (":snapshotter-secret-name", "s"),
            (":snapshotter-list-secret-namespace", "n"),
            (":group-snapshotter-get-secret-name", "g"),
        ]);
        assert_eq!(
            driver_parameters(&given),
            Ok(BTreeMap::from([("a".to_owned(), "1".to_owned())]))
        );
        let unknown = driver_parameters(&parameters(&[(":fstype", "xfs")]));
        assert_eq!(unknown, Err(ParameterError::Reserved(format!("{RESERVED}fstype"))));
    }

    #[test]
    fn secrets_are_named_by_templates() {
        let names = Names { content: "c", snapshot: Some(("ns", "s")) };
        let secret = |name: &str, namespace: &str| {
            let keys =
                [(":snapshotter-secret-name", name), (":snapshotter-secret-namespace", namespace)];
            secret(SecretUse::Snapshots, &parameters(&keys), names)
        };
        let found = |name: &str, namespace: &str| {
            Ok(Some(SecretReference { name: name.to_owned(), namespace: namespace.to_owned() }))
        };
        assert_eq!(secret("a", "b"), found("a", "b"));
        let all =
            "${volumesnapshotcontent.name}-${volumesnapshot.name}.${volumesnapshot.namespace}";
        assert_eq!(secret(all, "${volumesnapshot.namespace}"), found("c-s.ns", "ns"));
        for (name, namespace) in [
            ("a", "${volumesnapshot.name}"),
            ("${pvc.name}", "b"),
            ("a", ""),
            ("A", "b"),
            ("a", "b.c"),
            ("a-", "b"),
        ] {
            let refused = secret(name, namespace);
            assert!(refused.is_err(), "{name} {namespace}: {refused:?}");
        }
    }

    #[test]
    fn a_secret_has_both_halves_or_none() {
        let names = Names { content: "c", snapshot: None };
        let of = |pairs| secret(SecretUse::List, &parameters(pairs), names);
        assert_eq!(of(&[]), Ok(None));
        let half = of(&[(":snapshotter-list-secret-name", "a")]).unwrap_err();
        assert!(half.to_string().contains("Both must be specified"), "{half}");
        let tokens = of(&[
            (":snapshotter-list-secret-name", "${volumesnapshot.name}"),
            (":snapshotter-list-secret-namespace", "n"),
        ]);
        assert!(matches!(tokens, Err(ParameterError::Tokens { .. })), "{tokens:?}");
    }
}
