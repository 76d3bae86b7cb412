use proptest::{collection::vec, prelude::*, sample::Index, test_runner::RngSeed};
use wharf_proto::{cri, hooks::Removals};

use super::*;

/// Requests with everything in them that hooks see or change, and fields that nobody knows at every
/// level.
fn requests() -> [Vec<u8>; 3] {
    let resources = cri::LinuxContainerResources {
        cpu_quota: 50_000,
        oom_score_adj: -998,
        cpuset_cpus: "0-1".into(),
        hugepage_limits: vec![cri::HugepageLimit { page_size: "2MB".into(), limit: 4 }],
        unified: texts(),
        ..Default::default()
    };
    let sandbox = cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata { name: "p".into(), ..Default::default() }),
        labels: texts(),
        annotations: texts(),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: "/p".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let env = |key: &str, value: &[u8]| cri::KeyValue { key: key.into(), value: value.into() };
    let config = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: "c".into(), attempt: 300 }),
        envs: vec![env("a", b"1"), env("c", b"\xff"), env("a", b"2")],
        annotations: texts(),
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(resources.clone()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let run =
        cri::RunPodSandboxRequest { config: Some(sandbox.clone()), runtime_handler: "kata".into() };
    let create = cri::CreateContainerRequest {
        pod_sandbox_id: "pod".into(),
        config: Some(config),
        sandbox_config: Some(sandbox),
    };
    let update = cri::UpdateContainerResourcesRequest {
        container_id: "id".into(),
        linux: Some(resources),
        annotations: texts(),
        ..Default::default()
    };
    [
        with_unknown(run.encode_to_vec(), &[&[], &[1], &[1, 8]]),
        with_unknown(create.encode_to_vec(), &[&[], &[2], &[2, 15], &[2, 15, 1], &[3], &[3, 8]]),
        with_unknown(update.encode_to_vec(), &[&[], &[2]]),
    ]
}

/// Answers with everything in them that servers may name.
fn answers() -> [Vec<u8>; 2] {
    let keys = || vec!["a".to_owned(), "b".to_owned()];
    let removals = Some(Removals {
        labels: keys(),
        annotations: keys(),
        envs: keys(),
        unified: keys(),
        cpuset_cpus: true,
        cpuset_mems: true,
    });
    let container = ContainerResourceHookResponse {
        removals: removals.clone().map(|own| Removals { labels: Vec::new(), ..own }),
        ..container_answer()
    };
    let pod = PodSandboxHookResponse { annotations: texts(), removals, ..Default::default() };
    [container.encode_to_vec(), pod.encode_to_vec()]
}

fn with_unknown(bytes: Vec<u8>, paths: &[&[u32]]) -> Vec<u8> {
    let mut message = Message::parse(bytes.into()).unwrap();
    for path in paths {
        let inner = path.iter().fold(&mut message, |inner, number| inner.open(*number).unwrap());
        inner.set_bytes(UNKNOWN + 1, b"unknown");
        inner.set_varint(UNKNOWN + 2, 7);
    }
    message.encode().into()
}

fn judge(request: &[u8]) {
    run_pod_sandbox(request);
    create_container(request);
    update_container_resources(request);
}

/// A change of bytes, at a place that is chosen once there are any.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    // Lengths, tags of fields and of groups, and numbers that go on.
    let byte =
        prop_oneof![any::<u8>(), prop::sample::select(&[0, 1, 0x0a, 0x0b, 0x0c, 0x80, 0xff][..])];
    prop_oneof![
        4 => (at(), byte).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (at(), vec(any::<u8>(), 1..12)).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (at(), 1..12_usize).prop_map(|(at, size)| Change::Remove(at, size)),
        1 => (at(), 1..40_usize).prop_map(|(at, size)| Change::Repeat(at, size)),
    ]
}

fn apply(change: Change, bytes: &mut Vec<u8>) {
    let place = |at: Index, size: usize, bytes: &[u8]| {
        let start = at.index(bytes.len() + 1);
        start..(start + size).min(bytes.len())
    };
    match change {
        Change::Set(at, byte) => place(at, 1, bytes).for_each(|at| bytes[at] = byte),
        Change::Insert(at, new) => drop(bytes.splice(place(at, 0, bytes), new)),
        Change::Remove(at, size) => drop(bytes.drain(place(at, size, bytes))),
        Change::Repeat(at, size) => {
            let range = place(at, size, bytes);
            let copy = bytes[range.clone()].to_vec();
            bytes.splice(range.end..range.end, copy);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(5),
        cases: 1024,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn requests_with_mistakes(changes in vec(change(), 1..6)) {
        for mut request in requests() {
            for change in &changes {
                apply(change.clone(), &mut request);
            }
            judge(&request);
        }
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..512)) {
        judge(&bytes);
        hook_server_file(&bytes);
        partial_answer(&bytes);
    }

    #[test]
    fn answers_with_mistakes(changes in vec(change(), 1..6)) {
        for mut answer in answers() {
            for change in &changes {
                apply(change.clone(), &mut answer);
            }
            partial_answer(&answer);
        }
    }
}

#[test]
fn requests_cut_at_every_byte() {
    for request in requests() {
        (0..=request.len()).for_each(|end| judge(&request[..end]));
    }
}

/// Or nothing above would say anything.
#[test]
fn sound_requests_are_read_and_hold_what_nobody_knows() {
    let [run, create, update] = requests().map(Bytes::from);
    let pod = record::Pod::rebuilt(&PodSandboxHookRequest::default(), false);
    let known = record::Container::new("pod", "id", Default::default());
    assert!(pod::asked(&run).is_ok() && container::creation(&create, &pod, true).is_ok());
    assert!(container::update_asked(&update, &known).is_ok());
    assert_eq!(unknown(&create, &[2, 15, 1]).len(), 2);
}
