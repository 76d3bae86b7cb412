use proptest::prelude::*;

use super::*;
use crate::{
    pod::tests::{config as sandbox_config, strange, texts, unknown},
    resources::tests::resources,
};

fn config() -> impl Strategy<Value = cri::ContainerConfig> {
    let value = prop_oneof!["[x-z]{0,2}".prop_map(String::into_bytes), Just(vec![0xff]),];
    let envs = prop::collection::vec(("[A-C]", value), 0..5);
    let linux = prop::option::of(prop::option::of(resources()));
    (texts(), envs, linux, any::<bool>()).prop_map(|(annotations, envs, linux, tty)| {
        cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: "c".into(), attempt: 2 }),
            annotations,
            envs: envs.into_iter().map(|(key, value)| env(&key, value)).collect(),
            linux: linux.map(|resources| cri::LinuxContainerConfig {
                resources: resources.as_ref().map(cri_resources),
                ..Default::default()
            }),
            tty,
            ..Default::default()
        }
    })
}

fn answer() -> impl Strategy<Value = ContainerResourceHookResponse> {
    let envs = prop::collection::btree_map("[A-D]", "[x-z]{0,2}", 0..4);
    (texts(), prop::option::of(resources()), "(/[a-c]{1,2})?", envs).prop_map(
        |(container_annotations, container_resources, pod_cgroup_parent, container_envs)| {
            ContainerResourceHookResponse {
                container_annotations,
                container_resources,
                pod_cgroup_parent,
                container_envs,
                ..Default::default()
            }
        },
    )
}

/// koord-runtime-proxy's rules for resources, written down once more.
fn merge(into: &mut cri::LinuxContainerResources, answer: &Resources) {
    let take = |to: &mut i64, value: i64, wish: bool| {
        if wish {
            *to = value;
        }
    };
    take(&mut into.cpu_period, answer.cpu_period, answer.cpu_period > 0);
    take(&mut into.cpu_quota, answer.cpu_quota, answer.cpu_quota != 0);
    take(&mut into.cpu_shares, answer.cpu_shares, answer.cpu_shares > 0);
    let (memory, swap) = (answer.memory_limit_in_bytes, answer.memory_swap_limit_in_bytes);
    take(&mut into.memory_limit_in_bytes, memory, memory > 0);
    take(&mut into.memory_swap_limit_in_bytes, swap, swap > 0);
    let score = answer.oom_score_adj;
    take(&mut into.oom_score_adj, score, score != 0 && (-1000..=1000).contains(&score));
    into.cpuset_cpus.clone_from(&answer.cpuset_cpus);
    into.cpuset_mems.clone_from(&answer.cpuset_mems);
    into.unified.extend(answer.unified.clone());
}

proptest! {
    #[test]
    fn an_edit_of_the_bytes_is_the_merge_of_the_messages(
        config in config(),
        sandbox in sandbox_config(),
        answer in answer(),
        outer in unknown(),
        inner in unknown(),
    ) {
        let raw = Bytes::from([inner.clone(), config.encode_to_vec()].concat());
        let bytes = [outer.clone(), create(None, Some(sandbox.clone())).into()].concat();
        let mut message = Message::parse(bytes.into()).unwrap();
        message.set_all(CONFIG, &[raw]);
        let bytes = message.encode();

        let mut sent = creation(&bytes, &pod(), true).unwrap().question;
        let edits = create_edits(&sent, &answer);
        let edited = edited(bytes.clone(), &[], &edits).unwrap();
        prop_assert_eq!(edits.is_empty(), edited == bytes);
        prop_assert_eq!(strange(&edited, &[]), outer);
        prop_assert_eq!(strange(&edited, &[CONFIG]), inner);

        let result = created(edited.clone());
        let (own, mut expected) = (result.config.unwrap(), config.clone());
        expected.annotations.extend(answer.container_annotations.clone());
        if let Some(answer) = &answer.container_resources {
            let mut merged = expected.linux.clone().unwrap_or_default();
            merge(merged.resources.get_or_insert_default(), answer);
            // What is empty before and after need not appear.
            let empty = merged.resources == Some(Default::default());
            if !empty || expected.linux.as_ref().is_some_and(|linux| linux.resources.is_some()) {
                expected.linux = Some(merged);
            }
        }
        prop_assert_eq!(&own.annotations, &expected.annotations);
        prop_assert_eq!(&own.linux, &expected.linux);

        let texts = |envs: &[cri::KeyValue]| {
            map::texts(envs.iter().map(|env| (env.key.as_bytes(), &env.value[..])))
        };
        let kept = |envs: &[cri::KeyValue]| {
            envs.iter().filter(|env| str::from_utf8(&env.value).is_err()).count()
        };
        prop_assert_eq!(kept(&own.envs), kept(&config.envs));
        if answer.container_envs.is_empty() {
            prop_assert_eq!(&own.envs, &config.envs);
        } else {
            prop_assert_eq!(texts(&own.envs), answer.container_envs);
        }

        let mut expected = sandbox;
        if !answer.pod_cgroup_parent.is_empty() {
            let linux = expected.linux.get_or_insert_default();
            linux.cgroup_parent.clone_from(&answer.pod_cgroup_parent);
        }
        prop_assert_eq!(result.sandbox_config.unwrap(), expected);
        // The next server sees what the runtime would get.
        Container::apply(&mut sent, &edits);
        prop_assert_eq!(sent, creation(&edited, &pod(), true).unwrap().question);
    }

    #[test]
    fn an_answered_update_is_all_that_is_remembered(
        known in resources(),
        update in resources(),
        remembered in texts(),
        annotations in texts(),
        answer in answer(),
        inner in unknown(),
    ) {
        let own = ContainerResourceHookRequest {
            container_resources: Some(known.clone()),
            container_annotations: remembered.clone(),
            ..Default::default()
        };
        let record = record::Container::new("pod-1", "id-1", own);
        let linux = Bytes::from([cri_resources(&update).encode_to_vec(), inner.clone()].concat());
        let request = cri::UpdateContainerResourcesRequest { annotations, ..Default::default() };
        let mut message = Message::parse(request.encode_to_vec().into()).unwrap();
        message.set_all(UPDATE_LINUX, &[linux]);
        let bytes = message.encode();

        let mut finally = update_asked(&bytes, &record).unwrap();
        let overlaid = resources::overlaid(known.clone(), &update);
        prop_assert_eq!(finally.container_resources.as_ref(), Some(&overlaid));
        prop_assert_eq!(updated(bytes.clone(), &finally, false, &[]), Ok(bytes.clone()));

        let edits =
            Container::edits(HookPoint::PreUpdateContainerResources, &finally, &answer, OURS);
        Container::apply(&mut finally, &edits);
        let result = updated(bytes, &finally, true, &[]).unwrap();
        prop_assert_eq!(strange(&result, &[UPDATE_LINUX]), inner);
        let result = cri::UpdateContainerResourcesRequest::decode(result).unwrap();
        let mut expected = cri_resources(&overlaid);
        if let Some(answer) = &answer.container_resources {
            merge(&mut expected, answer);
        }
        expected.hugepage_limits = cri_resources(&update).hugepage_limits;
        prop_assert_eq!(result.linux.unwrap_or_default(), expected);
        let mut expected = remembered;
        expected.extend(answer.container_annotations);
        prop_assert_eq!(result.annotations, expected);
    }

    #[test]
    fn hostile_bytes_are_an_error_at_most(bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        let forgotten = record::Pod::rebuilt(&pod_question(), false);
        let _ = creation(&bytes, &forgotten, true);
        let edits = [pod::moved("", "/p").unwrap()];
        let _ = edited(bytes.clone(), &edits, &edits);
        let record = record::Container::new("pod-1", "id-1", Default::default());
        let _ = update_asked(&bytes, &record);
        let _ = updated(bytes, &record.question(), true, &[]);
    }
}
