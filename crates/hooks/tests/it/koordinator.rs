//! A model of koordinator's proxy, which loses fields that an answer leaves out.

use std::collections::BTreeMap;

use wharf_proto::hooks::{ContainerResourceHookRequest, ContainerResourceHookResponse};

/// The fields of a container that the proxy passes to the runtime after `answer`.
pub(crate) fn merged(
    mut container: ContainerResourceHookRequest,
    answer: ContainerResourceHookResponse,
) -> ContainerResourceHookRequest {
    container.container_annotations.extend(answer.container_annotations);
    if let (Some(own), Some(new)) = (&mut container.container_resources, answer.container_resources)
    {
        for (own, new) in [
            (&mut own.cpu_period, new.cpu_period),
            (&mut own.cpu_shares, new.cpu_shares),
            (&mut own.memory_limit_in_bytes, new.memory_limit_in_bytes),
            (&mut own.memory_swap_limit_in_bytes, new.memory_swap_limit_in_bytes),
        ] {
            if new > 0 {
                *own = new;
            }
        }
        if new.cpu_quota != 0 {
            own.cpu_quota = new.cpu_quota;
        }
        if (-1000..=1000).contains(&new.oom_score_adj) {
            own.oom_score_adj = new.oom_score_adj;
        }
        own.cpuset_cpus = new.cpuset_cpus;
        own.cpuset_mems = new.cpuset_mems;
        own.unified.extend(new.unified);
    }
    if !answer.pod_cgroup_parent.is_empty() {
        container.pod_cgroup_parent = answer.pod_cgroup_parent;
    }
    if !answer.container_envs.is_empty() {
        container.container_envs = answer.container_envs;
    }
    container
}

/// The model has the traps: without them the tests of adjustments would prove nothing.
#[test]
fn an_answer_that_repeats_nothing_loses_much() {
    let before = crate::support::container();
    let naive = ContainerResourceHookResponse {
        container_resources: Some(Default::default()),
        container_envs: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
        ..Default::default()
    };
    let after = merged(before, naive);
    let resources = after.container_resources.unwrap();
    assert_eq!((resources.cpuset_cpus.as_str(), resources.oom_score_adj), ("", 0));
    assert_eq!(after.container_envs.len(), 1);
}
