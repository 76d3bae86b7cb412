use proptest::prelude::*;
use prost::Message as _;
use wharf_proto::cri;

use super::*;

/// Fields that no version of the protocol has.
pub(crate) fn unknown() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((2000_u32..2010, any::<u64>()), 0..4).prop_map(|fields| {
        let mut message = Message::default();
        for (number, value) in fields {
            message.set_varint(number, value);
        }
        message.encode().into()
    })
}

/// The fields that no version of the protocol has, of a message or of one inside it.
pub(crate) fn strange(bytes: &Bytes, path: &[u32]) -> Vec<u8> {
    let mut message = Message::parse(bytes.clone()).unwrap();
    let mut inner = &mut message;
    for number in path {
        inner = inner.open(*number).unwrap();
    }
    let bytes = inner.encode();
    let fields = wharf_wire::fields(&bytes).map(Result::unwrap);
    fields.filter(|field| field.number >= 2000).flat_map(|field| field.raw.to_vec()).collect()
}

pub(crate) fn texts() -> impl Strategy<Value = map::Map> {
    prop::collection::btree_map("[a-d]", "[x-z]{0,2}", 0..4)
}

pub(crate) fn config() -> impl Strategy<Value = cri::PodSandboxConfig> {
    let linux = prop::option::of("(/[a-c]{1,2})?");
    let metadata = prop::option::of(("[a-z]{1,3}", "[a-z]{1,3}", "[a-z]{1,3}", any::<u32>()));
    (metadata, texts(), texts(), linux, "[a-z]{0,3}").prop_map(
        |(metadata, labels, annotations, linux, hostname)| cri::PodSandboxConfig {
            metadata: metadata.map(|(name, uid, namespace, attempt)| cri::PodSandboxMetadata {
                name,
                uid,
                namespace,
                attempt,
            }),
            labels,
            annotations,
            linux: linux.map(|cgroup_parent| cri::LinuxPodSandboxConfig {
                cgroup_parent,
                sysctls: [("kernel.msgmax".to_owned(), "1".to_owned())].into(),
                ..Default::default()
            }),
            hostname,
            ..Default::default()
        },
    )
}

fn answer() -> impl Strategy<Value = PodSandboxHookResponse> {
    (texts(), texts(), "(/[a-c]{1,2})?").prop_map(|(labels, annotations, cgroup_parent)| {
        PodSandboxHookResponse { labels, annotations, cgroup_parent, ..Default::default() }
    })
}

fn edits(sent: &PodSandboxHookRequest, answer: &PodSandboxHookResponse) -> Vec<Edit> {
    PodSandbox::edits(HookPoint::PreRunPodSandbox, sent, answer, Reading::default())
}

fn run(config: Option<cri::PodSandboxConfig>) -> Bytes {
    let runtime_handler = "kata".to_owned();
    cri::RunPodSandboxRequest { config, runtime_handler }.encode_to_vec().into()
}

fn map(key: &str, value: &str) -> map::Map {
    [(key.to_owned(), value.to_owned())].into()
}

#[test]
fn a_hook_is_told_who_the_pod_is() {
    let asked = asked(&run(Some(cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: "name".into(),
            uid: "uid".into(),
            namespace: "namespace".into(),
            attempt: 3,
        }),
        labels: map("l", "1"),
        annotations: map("a", "2"),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: "/p".into(),
            ..Default::default()
        }),
        ..Default::default()
    })));
    let pod_meta = PodSandboxMetadata {
        name: "name".into(),
        uid: "uid".into(),
        namespace: "namespace".into(),
        attempt: 0,
    };
    let expected = PodSandboxHookRequest {
        pod_meta: Some(pod_meta),
        runtime_handler: "kata".into(),
        labels: map("l", "1"),
        annotations: map("a", "2"),
        cgroup_parent: "/p".into(),
        overhead: None,
        resources: None,
    };
    assert_eq!(asked, Ok(expected));
}

#[test]
fn a_request_without_a_config_is_changed_all_the_same() {
    let bytes = run(None);
    let sent = asked(&bytes).unwrap();
    assert_eq!(sent.runtime_handler, "kata");
    assert_eq!(edited(bytes.clone(), &edits(&sent, &Default::default())), Ok(bytes.clone()));
    let answer = PodSandboxHookResponse { cgroup_parent: "/p".into(), ..Default::default() };
    let edited = edited(bytes, &edits(&sent, &answer)).unwrap();
    assert_eq!(asked(&edited).unwrap().cgroup_parent, "/p");
}

#[test]
fn answers_to_post_hooks_and_resources_change_nothing() {
    let sent = PodSandboxHookRequest::default();
    let resources =
        Some(wharf_proto::hooks::LinuxContainerResources { cpu_shares: 5, ..Default::default() });
    let answer = PodSandboxHookResponse { resources, ..Default::default() };
    assert_eq!(edits(&sent, &answer), []);
    let answer = PodSandboxHookResponse { labels: map("l", "1"), ..Default::default() };
    let late = PodSandbox::edits(HookPoint::PostStopPodSandbox, &sent, &answer, Reading::default());
    assert_eq!(late, []);
}

proptest! {
    #[test]
    fn an_edit_of_the_bytes_is_the_merge_of_the_messages(
        config in config(),
        answer in answer(),
        outer in unknown(),
        inner in unknown(),
    ) {
        let raw = Message::parse([config.encode_to_vec(), inner.clone()].concat().into()).unwrap();
        let mut message = Message::parse([outer.clone(), run(None).into()].concat().into()).unwrap();
        message.set_all(CONFIG, &[raw.encode()]);
        let bytes = message.encode();

        let mut sent = asked(&bytes).unwrap();
        let edits = edits(&sent, &answer);
        let edited = edited(bytes.clone(), &edits).unwrap();
        prop_assert_eq!(edits.is_empty(), edited == bytes);
        prop_assert_eq!(strange(&edited, &[]), outer);
        prop_assert_eq!(strange(&edited, &[CONFIG]), inner);

        let mut expected = config;
        expected.labels.extend(answer.labels.clone());
        expected.annotations.extend(answer.annotations.clone());
        if !answer.cgroup_parent.is_empty() {
            expected.linux.get_or_insert_default().cgroup_parent.clone_from(&answer.cgroup_parent);
        }
        let merged = cri::RunPodSandboxRequest::decode(edited.clone()).unwrap();
        prop_assert_eq!(merged.config.unwrap(), expected);
        // The next server sees what the runtime would get.
        PodSandbox::apply(&mut sent, &edits);
        prop_assert_eq!(sent, asked(&edited).unwrap());
    }

    #[test]
    fn hostile_bytes_are_an_error_at_most(bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        let _ = asked(&bytes);
        let _ = edited(bytes, &[moved("", "/p").unwrap()]);
    }
}
