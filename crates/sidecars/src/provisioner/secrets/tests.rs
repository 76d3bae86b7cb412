use super::*;

fn referenced(
    kind: SecretKind,
    pairs: &[(&str, &str)],
) -> Result<Option<SecretReference>, SecretRefusal> {
    let annotations = [("team.example.com/secret", "mine")].into_iter().collect();
    let subject =
        Subject { volume: "pvc-1", claim: "data", namespace: "web", annotations: &annotations };
    let pairs = pairs.iter().map(|(key, value)| {
        // A key with a dash stands for the one with the prefix.
        let prefix = if key.contains('-') { context::PREFIX } else { "" };
        (format!("{prefix}{key}"), *value)
    });
    kind.reference(&pairs.collect(), subject)
}

fn named(name: &str, namespace: &str) -> Option<SecretReference> {
    Some(SecretReference { name: name.to_owned(), namespace: namespace.to_owned() })
}

#[test]
fn each_kind_has_keys_of_its_own() {
    for (kind, key, deprecated) in [
        (SecretKind::Provisioner, "provisioner", Some("csiProvisionerSecret")),
        (SecretKind::ControllerPublish, "controller-publish", Some("csiControllerPublishSecret")),
        (SecretKind::NodeStage, "node-stage", Some("csiNodeStageSecret")),
        (SecretKind::NodePublish, "node-publish", Some("csiNodePublishSecret")),
        (SecretKind::ControllerExpand, "controller-expand", None),
        (SecretKind::NodeExpand, "node-expand", None),
        (SecretKind::ControllerModify, "controller-modify", None),
    ] {
        let (name, namespace) = (format!("{key}-secret-name"), format!("{key}-secret-namespace"));
        let pairs = [(name.as_str(), "a"), (namespace.as_str(), "b")];
        assert_eq!(referenced(kind, &pairs), Ok(named("a", "b")), "{key}");
        let default = [("secret-name", "d"), ("secret-namespace", "e")];
        assert_eq!(referenced(kind, &default), Ok(named("d", "e")), "{key}");
        assert_eq!(referenced(kind, &[default, pairs].concat()), Ok(named("a", "b")), "{key}");
        assert_eq!(referenced(kind, &[]), Ok(None), "{key}");
        if let Some(deprecated) = deprecated {
            let older = [format!("{deprecated}Name"), format!("{deprecated}Namespace")];
            let older = [(older[0].as_str(), "a"), (older[1].as_str(), "b")];
            assert_eq!(referenced(kind, &older), Ok(named("a", "b")), "{key}");
            let twice = referenced(kind, &[older, pairs].concat()).unwrap_err().to_string();
            assert!(twice.ends_with("with both \"csi\" and \"csi.storage.k8s.io/\" keys"));
        }
    }
}

#[test]
fn names_are_made_of_volume_and_claim() {
    let kind = SecretKind::Provisioner;
    let made = |name, namespace| {
        referenced(
            kind,
            &[("provisioner-secret-name", name), ("provisioner-secret-namespace", namespace)],
        )
    };
    assert_eq!(made("${pv.name}", "${pvc.namespace}"), Ok(named("pvc-1", "web")));
    assert_eq!(made("${pvc.namespace}-${pvc.name}", "${pv.name}"), Ok(named("web-data", "pvc-1")));
    let annotated = "${pvc.annotations['team.example.com/secret']}";
    assert_eq!(made(annotated, "ns"), Ok(named("mine", "ns")));
    let refused = |name, namespace| made(name, namespace).unwrap_err().to_string();
    let tokens = "error resolving value \"${pvc.annotations['x']}-${y}\": invalid tokens: \
        [\"pvc.annotations['x']\" \"y\"]";
    assert_eq!(refused("${pvc.annotations['x']}-${y}", "ns"), tokens);
    // A user of claims must not choose the namespace.
    let tokens = "error resolving value \"${pvc.name}\": invalid tokens: [\"pvc.name\"]";
    assert_eq!(refused("s", "${pvc.name}"), tokens);
    assert_eq!(refused("s", "Not.Valid"), "\"Not.Valid\" is not a valid namespace name");
    assert_eq!(refused("Wrong_", "ns"), "\"Wrong_\" is not a valid secret name");
    let resolved = "\"${pvc.name}_\" resolved to \"data_\" which is not a valid secret name";
    assert_eq!(refused("${pvc.name}_", "ns"), resolved);
}

#[test]
fn half_a_reference_is_a_mistake() {
    let kind = SecretKind::NodeStage;
    for half in ["node-stage-secret-name", "node-stage-secret-namespace", "csiNodeStageSecretName"]
    {
        assert_eq!(
            referenced(kind, &[(half, "a")]),
            Err(SecretRefusal::Half { kind: "NodeStage" })
        );
    }
    let half = referenced(kind, &[("secret-name", "a")]);
    assert_eq!(half, Err(SecretRefusal::Half { kind: "Default" }));
    for (name, namespace) in [("", "b"), ("a", "")] {
        let pairs = [("node-stage-secret-name", name), ("node-stage-secret-namespace", namespace)];
        assert_eq!(referenced(kind, &pairs), Err(SecretRefusal::Empty { kind: "NodeStage" }));
    }
}

#[test]
fn annotations_are_read_only_where_a_name_needs_them() {
    let wants = |value| wants_annotations(&[("a", value)].into_iter().collect());
    assert!(wants("${pvc.annotations['k']}"));
    assert!(!wants("${pvc.name}"));
}
