//! What holds for any bytes. A breach panics: for tests with seeded input, and for the targets of
//! the `fuzz` package.

use bytes::Bytes;
use prost::Message as _;
use wharf_proto::hooks::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, LinuxContainerResources,
    PodSandboxHookRequest, PodSandboxHookResponse,
};
use wharf_wire::{Message, fields};

use crate::{
    HookPoint, config,
    config::{FailurePolicy, FileWarning},
    container::{self, Container, Creation},
    map::Map,
    pod::{self, PodSandbox},
    record,
    subject::{Reading, Subject},
};

/// No message of the runtime's protocol has fields from here on.
const UNKNOWN: u32 = 100;
/// The longest error that people read.
const LONGEST_ERROR: usize = 512;

/// Whatever is in a hook server's file, it is a server that can be asked, or a short error. Without
/// its server the same calls fail whose hooks may not fail.
pub fn hook_server_file(text: &[u8]) {
    let refusing = config::refusing_points(text);
    assert!(refusing.iter().all(|point| point.is_before()));
    match config::parse("a.json", text) {
        Ok((server, warnings)) => {
            let is_repeated = |it: &FileWarning| matches!(it, FileWarning::RepeatedKey(_));
            // Values of unknown keys are not looked at when a file is read.
            let is_json = serde_json::from_slice::<serde_json::Value>(text).is_ok();
            if is_json && !warnings.iter().any(is_repeated) {
                let must = |(point, policy): (&HookPoint, &FailurePolicy)| {
                    let must = server.required || *policy == FailurePolicy::Fail;
                    (must && point.is_before()).then_some(*point)
                };
                assert_eq!(refusing, server.hooks.iter().filter_map(must).collect());
            }
            assert!(server.endpoint.is_absolute());
            assert!(server.timeout.is_none_or(|timeout| !timeout.is_zero()));
        }
        Err(error) => {
            let error = error.to_string();
            assert!(!error.is_empty() && error.len() < LONGEST_ERROR, "{error}");
        }
    }
}

/// A RunPodSandbox keeps what nobody changes, and the next server sees what the runtime would get.
pub fn run_pod_sandbox(request: &[u8]) {
    let request = Bytes::copy_from_slice(request);
    let Ok(mut asked) = pod::asked(&request) else { return };
    assert_eq!(pod::edited(request.clone(), &[]), Ok(request.clone()));
    let answer = PodSandboxHookResponse {
        labels: texts(),
        annotations: texts(),
        cgroup_parent: "/new".to_owned(),
        ..Default::default()
    };
    let edits = PodSandbox::edits(HookPoint::PreRunPodSandbox, &asked, &answer, Reading::default());
    let edited = pod::edited(request.clone(), &edits).expect("it was read before");
    // config, its metadata and its linux
    kept(&request, &edited, &[&[], &[1], &[1, 1], &[1, 8]]);
    PodSandbox::apply(&mut asked, &edits);
    assert_eq!(pod::asked(&edited), Ok(asked));
}

/// Likewise a CreateContainer, in a pod that hooks changed and in one of which that is not known.
pub fn create_container(request: &[u8]) {
    let request = Bytes::copy_from_slice(request);
    if let Ok(details) = container::details(&request) {
        let question = ContainerResourceHookRequest::decode(&*details);
        assert!(question.is_ok_and(|question| question.details.is_some()));
    }
    let made = PodSandboxHookRequest { labels: texts(), ..Default::default() };
    let answer = PodSandboxHookResponse { labels: texts(), ..Default::default() };
    let changes = PodSandbox::edits(
        HookPoint::PreRunPodSandbox,
        &PodSandboxHookRequest::default(),
        &answer,
        Reading::default(),
    );
    for pod in [record::Pod::new(&made, changes), record::Pod::rebuilt(&made, false)] {
        let Ok(Creation { mut question, carried }) = container::creation(&request, &pod, true)
        else {
            continue;
        };
        assert_eq!(container::edited(request.clone(), &[], &[]), Ok(request.clone()));
        let (point, reading) = (HookPoint::PreCreateContainer, Reading::default());
        let edits = Container::edits(point, &question, &container_answer(), reading);
        // The labels of its pod were not read.
        let Ok(edited) = container::edited(request.clone(), &carried, &edits) else { continue };
        // config, its metadata, linux and resources; sandbox_config and its linux
        let paths = [&[][..], &[2], &[2, 1], &[2, 15], &[2, 15, 1], &[3], &[3, 8]];
        kept(&request, &edited, &paths);
        Container::apply(&mut question, &edits);
        assert_eq!(container::creation(&edited, &pod, true).map(|it| it.question), Ok(question));
    }
}

/// An UpdateContainerResources keeps what hooks have no say in, and holds what they were told in
/// the end.
pub fn update_container_resources(request: &[u8]) {
    let request = Bytes::copy_from_slice(request);
    let known = record::Container::new("pod", "id", Default::default());
    let Ok(mut asked) = container::update_asked(&request, &known) else { return };
    assert_eq!(container::updated(request.clone(), &asked, false, &[]), Ok(request.clone()));
    let (point, reading) = (HookPoint::PreUpdateContainerResources, Reading::default());
    let edits = Container::edits(point, &asked, &container_answer(), reading);
    Container::apply(&mut asked, &edits);
    // Its annotations were not read.
    let Ok(updated) = container::updated(request.clone(), &asked, true, &edits) else { return };
    kept(&request, &updated, &[&[], &[2]]);
    let seen = container::update_asked(&updated, &known).expect("what is written is read");
    assert_eq!(seen.container_resources, asked.container_resources);
}

/// A partial answer changes fields once, or is refused with a short error that names one.
pub fn partial_answer(answer: &[u8]) {
    let (sent, points) = (
        container_answer(),
        [
            HookPoint::PreCreateContainer,
            HookPoint::PreStartContainer,
            HookPoint::PreUpdateContainerResources,
        ],
    );
    let sent = ContainerResourceHookRequest {
        container_annotations: sent.container_annotations,
        container_resources: sent.container_resources,
        pod_cgroup_parent: sent.pod_cgroup_parent,
        container_envs: sent.container_envs,
        ..Default::default()
    };
    if let Ok(answer) = ContainerResourceHookResponse::decode(answer) {
        for point in points {
            applied_once::<Container>(point, &sent, &answer);
        }
    }
    let sent =
        PodSandboxHookRequest { labels: texts(), annotations: texts(), ..Default::default() };
    if let Ok(answer) = PodSandboxHookResponse::decode(answer) {
        applied_once::<PodSandbox>(HookPoint::PreRunPodSandbox, &sent, &answer);
    }
}

fn applied_once<S: Subject>(point: HookPoint, sent: &S::Request, answer: &S::Response) {
    match S::named_edits(point, sent, answer) {
        Ok(edits) => {
            let mut changed = sent.clone();
            S::apply(&mut changed, &edits);
            // What is both repeated and removed was there only once.
            if let Ok(again) = S::named_edits(point, &changed, answer) {
                assert_eq!(again, [], "nothing is left to be done");
            }
        }
        Err(error) => assert!(!error.field.is_empty() && !error.reason.is_empty(), "{error}"),
    }
}

fn container_answer() -> ContainerResourceHookResponse {
    ContainerResourceHookResponse {
        container_annotations: texts(),
        container_resources: Some(LinuxContainerResources {
            cpu_quota: -1,
            cpu_shares: 1024,
            memory_limit_in_bytes: i64::MAX,
            oom_score_adj: -999,
            cpuset_cpus: "0-3".to_owned(),
            unified: texts(),
            ..Default::default()
        }),
        pod_cgroup_parent: "/new".to_owned(),
        container_envs: texts(),
        ..Default::default()
    }
}

/// Keys that bytes find soon.
fn texts() -> Map {
    ["", "a", "b"].map(|key| (key.to_owned(), "value".to_owned())).into()
}

/// In the messages at `paths`, fields that nobody knows are as they were.
fn kept(before: &Bytes, after: &Bytes, paths: &[&[u32]]) {
    for path in paths {
        assert_eq!(unknown(after, path), unknown(before, path), "in {path:?}");
    }
}

fn unknown(bytes: &Bytes, path: &[u32]) -> Vec<Vec<u8>> {
    let mut message = Message::parse(bytes.clone()).expect("a message");
    let inner = path.iter().try_fold(&mut message, |message, number| message.open(*number));
    let bytes = inner.expect("messages along the path").encode();
    let fields = fields(&bytes).map(|field| field.expect("a message"));
    fields.filter(|field| field.number >= UNKNOWN).map(|field| field.raw.to_vec()).collect()
}

#[cfg(test)]
mod tests;
