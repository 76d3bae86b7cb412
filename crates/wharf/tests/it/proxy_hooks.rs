//! crictl, `wharf proxy` with a hook server, and a recording runtime: only the hook's changes reach
//! the runtime.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;
use wharf_proto::hooks::{LinuxContainerResources, PodSandboxHookResponse};
use wharf_testkit::{
    hook_server::{HookScript, HookServer, echo},
    peers,
    runtime::Received,
};

use crate::{
    proxy::{crictl, recorded, recording, register, script, start},
    support::Bench,
};

/// The fields that arrive otherwise than they were sent.
const CHANGED: &[&str] = &[
    r#"RunPodSandbox config/annotations/note: none -> "PreRunPodSandbox""#,
    r#"RunPodSandbox config/labels/hooked: none -> "yes""#,
    r#"RunPodSandbox config/linux/cgroup_parent: "/p" -> "/hooked""#,
    r#"CreateContainer config/annotations/note: none -> "PreCreateContainer""#,
    // After the two of one name that crictl sent.
    r#"CreateContainer config/envs/2/key: none -> "HOOKED""#,
    r#"CreateContainer config/envs/2/value: none -> "eWVz""#,
    r#"CreateContainer config/linux/resources/cpuset_cpus: none -> "0""#,
    // What was changed of the pod holds for its containers.
    r#"CreateContainer sandbox_config/annotations/note: none -> "PreRunPodSandbox""#,
    r#"CreateContainer sandbox_config/labels/hooked: none -> "yes""#,
    r#"CreateContainer sandbox_config/linux/cgroup_parent: "/p" -> "/hooked""#,
    r#"UpdateContainerResources annotations/note: none -> "PreUpdateContainerResources""#,
    r#"UpdateContainerResources linux/cpu_shares: none -> "512""#,
];

#[tokio::test]
async fn bytes_differ_only_where_a_hook_changed_them() {
    let Some(binary) = peers::binary("crictl") else { return };
    let bench = Bench::new();
    let runtime = recording(&bench);
    let hooks = HookServer::serve(&bench.path("hooks.sock"), changing());
    let points = ["PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources"];
    register(&bench, &hooks, &points);
    let (_proxy, socket) = start(&bench, runtime.path()).await;

    let mut changed = Vec::new();
    for line in script(&bench) {
        let args: Vec<_> = line.split(' ').collect();
        let (direct, sent) = recorded(&runtime, crictl(&binary, runtime.path(), &args)).await;
        let (through, arrived) = recorded(&runtime, crictl(&binary, &socket, &args)).await;
        assert_eq!(direct.status.code(), through.status.code(), "{line}: {through:?}");
        assert_eq!(sent.len(), arrived.len(), "{line}");
        for (sent, arrived) in sent.iter().zip(&arrived) {
            assert_eq!((&sent.method, &sent.headers), (&arrived.method, &arrived.headers));
            if sent.data != arrived.data {
                changed.extend(differences(sent, arrived));
            }
        }
    }
    assert_eq!(changed, CHANGED);
    assert_eq!(hooks.hooks(), points);
}

/// A change of each kind.
fn changing() -> HookScript {
    let note = |hook: &str| ("note".to_owned(), hook.to_owned());
    HookScript {
        pod: Arc::new(move |hook, _| PodSandboxHookResponse {
            labels: [("hooked".to_owned(), "yes".to_owned())].into(),
            annotations: [note(hook)].into(),
            cgroup_parent: "/hooked".to_owned(),
            ..PodSandboxHookResponse::default()
        }),
        container: Arc::new(move |hook, asked| {
            let mut answer = echo(asked);
            answer.container_annotations = [note(hook)].into();
            answer.container_envs.insert("HOOKED".to_owned(), "yes".to_owned());
            let resources = answer.container_resources.take().unwrap_or_default();
            answer.container_resources = Some(match hook {
                "PreCreateContainer" => {
                    LinuxContainerResources { cpuset_cpus: "0".to_owned(), ..resources }
                }
                _ => LinuxContainerResources { cpu_shares: 512, ..resources },
            });
            answer
        }),
        ..HookScript::default()
    }
}

fn method(call: &Received) -> &str {
    call.method.rsplit('/').next().unwrap()
}

/// The fields of two messages that are not the same, with what they are in both.
fn differences(sent: &Received, arrived: &Received) -> Vec<String> {
    let (method, sent, arrived) = (method(sent), fields(sent), fields(arrived));
    let at = |fields: &BTreeMap<_, String>, path| {
        fields.get(path).cloned().unwrap_or_else(|| "none".to_owned())
    };
    let paths: BTreeSet<_> = sent.keys().chain(arrived.keys()).collect();
    let differs = |path: &&String| sent.get(*path) != arrived.get(*path);
    let told = |path| format!("{method} {path}: {} -> {}", at(&sent, path), at(&arrived, path));
    paths.into_iter().filter(differs).map(told).collect()
}

/// A call's message as its fields by path, all that it consists of.
fn fields(call: &Received) -> BTreeMap<String, String> {
    const FRAME: usize = 5;
    let messages = DescriptorPool::decode(wharf_proto::FILE_DESCRIPTOR_SET).unwrap();
    let service = messages.get_service_by_name("runtime.v1.RuntimeService").unwrap();
    let kind = service.methods().find(|known| known.name() == method(call)).unwrap().input();
    let message = DynamicMessage::decode(kind, &call.data[FRAME..]).unwrap();
    assert_eq!(message.unknown_fields().count(), 0);
    let options = SerializeOptions::new().use_proto_field_name(true);
    let document = message.serialize_with_options(serde_json::value::Serializer, &options).unwrap();
    let mut fields = BTreeMap::new();
    flatten("", &document, &mut fields);
    fields
}

fn flatten(path: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    let below = |name: &str| if path.is_empty() { name.into() } else { format!("{path}/{name}") };
    match value {
        Value::Object(object) if !object.is_empty() => {
            object.iter().for_each(|(name, value)| flatten(&below(name), value, fields));
        }
        Value::Array(items) if !items.is_empty() => {
            let items = items.iter().enumerate();
            items.for_each(|(at, value)| flatten(&below(&at.to_string()), value, fields));
        }
        leaf => drop(fields.insert(path.to_owned(), leaf.to_string())),
    }
}
