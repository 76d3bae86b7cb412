//! Compares our declarations with those in the upstream Go bindings, in both directions.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    ServiceDescriptor,
};
use wharf_testkit::peers;

/// Maps the name of a declaration to a text with everything that decides its wire format.
type Facts = BTreeMap<String, String>;

#[test]
fn csi_is_the_union_of_1_12_and_1_13() {
    let (Some(old), Some(new)) = (theirs("descriptors-csi-1.12"), theirs("descriptors-csi-1.13"))
    else {
        return;
    };
    assert_same("csi.v1", &[old, new]);
}

#[test]
fn kubelet_protocols_are_those_of_kubernetes() {
    let Some(kubernetes) = theirs("descriptors-kubernetes") else { return };
    for package in [
        "k8s.io.kubelet.pkg.apis.dra.v1",
        "k8s.io.kubelet.pkg.apis.dra.v1beta1",
        "pluginregistration",
        "runtime.v1",
        "v1beta1",
    ] {
        assert_same(package, std::slice::from_ref(&kubernetes));
    }
}

#[test]
fn hooks_are_those_of_koordinator() {
    let Some(koordinator) = theirs("descriptors-koordinator") else { return };
    assert_same_but_for("runtime.v1alpha1", &[koordinator], is_extension);
}

/// Whether a declaration in the package of koordinator's hooks is an extension of ours.
fn is_extension(name: &str) -> bool {
    let name = name.strip_prefix("runtime.v1alpha1.").unwrap_or(name);
    let (message, field) = name.split_once('.').unwrap_or((name, ""));
    match message {
        "ContainerDetails" | "ContainerMount" | "Removals" => true,
        "ContainerResourceHookRequest" => field == "details",
        "ContainerResourceHookResponse" | "PodSandboxHookResponse" => field == "removals",
        _ => false,
    }
}

/// Koordinator's fields have much smaller numbers, and readers skip fields that they do not know.
#[test]
fn our_fields_of_hooks_are_out_of_the_way() {
    let pool = ours();
    let messages = pool.all_messages().filter(|it| it.package_name() == "runtime.v1alpha1");
    let fields: Vec<_> = messages
        .filter(|message| message.name().contains("Hook"))
        .flat_map(|message| message.fields().collect::<Vec<_>>())
        .collect();
    let (ours, theirs): (Vec<_>, Vec<_>) =
        fields.iter().partition(|field| is_extension(field.full_name()));
    assert_eq!(ours.len(), 3);
    assert!(ours.iter().all(|field| field.number() > 50_000));
    assert!(theirs.iter().all(|field| field.number() < 1000));
}

#[test]
fn every_package_of_ours_is_compared() {
    let ours: BTreeSet<_> = ours().files().map(|file| file.package_name().to_owned()).collect();
    let compared = [
        "csi.v1",
        "google.protobuf",
        "k8s.io.kubelet.pkg.apis.dra.v1",
        "k8s.io.kubelet.pkg.apis.dra.v1beta1",
        "pluginregistration",
        "runtime.v1",
        "runtime.v1alpha1",
        "v1beta1",
    ];
    assert_eq!(ours, compared.map(str::to_owned).into());
}

/// The descriptors that the peer `name` prints, or `None` if peers are skipped.
fn theirs(name: &str) -> Option<DescriptorPool> {
    let output = Command::new(peers::binary(name)?).output().expect("the peer runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(DescriptorPool::decode(output.stdout.as_slice()).expect("the peer writes descriptors"))
}

fn ours() -> DescriptorPool {
    DescriptorPool::decode(wharf_proto::FILE_DESCRIPTOR_SET).expect("our descriptors are whole")
}

/// Asserts that our facts are the union of the facts in `theirs`.
fn assert_same(package: &str, theirs: &[DescriptorPool]) {
    assert_same_but_for(package, theirs, |_| false);
}

/// Like [`assert_same`], but ignores declarations that are ours alone.
fn assert_same_but_for(package: &str, theirs: &[DescriptorPool], is_ours: fn(&str) -> bool) {
    let mut ours = facts(&ours(), package);
    ours.retain(|name, _| !is_ours(name));
    let mut rest = ours.clone();
    let mut differences = Vec::new();
    for pool in theirs {
        let theirs = facts(pool, package);
        assert!(!theirs.is_empty(), "the peer has no package {package}");
        for (name, fact) in theirs {
            rest.remove(&name);
            let own = ours.get(&name).map_or("absent", String::as_str);
            if own != fact {
                differences.push(format!("{name}: theirs is {fact}, ours is {own}"));
            }
        }
    }
    differences.extend(
        rest.into_iter().map(|(name, fact)| format!("{name}: theirs is absent, ours is {fact}")),
    );
    assert!(differences.is_empty(), "{package}:\n{}", differences.join("\n"));
}

fn facts(pool: &DescriptorPool, package: &str) -> Facts {
    let mut facts = Facts::new();
    for message in pool.all_messages().filter(|message| message.package_name() == package) {
        message_facts(&message, &mut facts);
    }
    for declared in pool.all_enums().filter(|declared| declared.package_name() == package) {
        enum_facts(&declared, &mut facts);
    }
    for service in pool.services().filter(|service| service.package_name() == package) {
        service_facts(&service, &mut facts);
    }
    for extension in pool.all_extensions().filter(|extension| extension.package_name() == package) {
        let (number, cardinality, extendee) =
            (extension.number(), extension.cardinality(), extension.containing_message());
        let fact = format!(
            "extension {number} of {}, {}, {cardinality:?}",
            extendee.full_name(),
            kind(&extension.kind())
        );
        facts.insert(extension.full_name().to_owned(), fact);
    }
    facts
}

fn message_facts(message: &MessageDescriptor, facts: &mut Facts) {
    let marks = marks(&message.options());
    facts.insert(
        message.full_name().to_owned(),
        format!("message, map entry {}, {marks}", message.is_map_entry()),
    );
    for field in message.fields() {
        facts.insert(field.full_name().to_owned(), field_fact(&field));
    }
}

fn field_fact(field: &FieldDescriptor) -> String {
    format!(
        "field {}, {}, {:?}, map {}, packed {}, presence {}, oneof {:?}, {}",
        field.number(),
        kind(&field.kind()),
        field.cardinality(),
        field.is_map(),
        field.is_packed(),
        field.supports_presence(),
        field.containing_oneof().map(|oneof| oneof.name().to_owned()),
        marks(&field.options()),
    )
}

fn enum_facts(declared: &EnumDescriptor, facts: &mut Facts) {
    let name = declared.full_name();
    facts.insert(name.to_owned(), format!("enum, {}", marks(&declared.options())));
    for value in declared.values() {
        let fact = format!("value {}, {}", value.number(), marks(&value.options()));
        facts.insert(format!("{name}.{}", value.name()), fact);
    }
}

fn service_facts(service: &ServiceDescriptor, facts: &mut Facts) {
    facts.insert(service.full_name().to_owned(), format!("service, {}", marks(&service.options())));
    for method in service.methods() {
        let fact = format!(
            "method from {} (stream {}) to {} (stream {}), {}",
            method.input().full_name(),
            method.is_client_streaming(),
            method.output().full_name(),
            method.is_server_streaming(),
            marks(&method.options()),
        );
        facts.insert(method.full_name().to_owned(), fact);
    }
}

/// The type of a field: its name, or the scalar type.
fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(declared) => declared.full_name().to_owned(),
        scalar => format!("{scalar:?}"),
    }
}

/// The custom options of a declaration: csi_secret and the alpha options.
fn marks(options: &DynamicMessage) -> String {
    let marks: BTreeSet<_> =
        options.extensions().map(|(mark, value)| format!("{}={value}", mark.full_name())).collect();
    format!("marks {marks:?}")
}
