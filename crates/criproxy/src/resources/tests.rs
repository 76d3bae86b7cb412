use proptest::prelude::*;
use prost::Message as _;
use wharf_proto::cri;

use super::*;

pub(crate) fn resources() -> impl Strategy<Value = Resources> {
    let amount = || prop_oneof![Just(0), Just(-1), 1_i64..5, any::<i64>()];
    let amounts = (amount(), amount(), amount(), amount(), amount(), amount());
    let unified = prop::collection::btree_map("[a-c]", "[x-z]{0,2}", 0..3);
    let hugepages = prop::collection::vec(("[a-z]{1,3}", any::<u64>()), 0..2);
    (amounts, "[0-3,-]{0,3}", "[0-3]{0,2}", unified, hugepages).prop_map(
        |(amounts, cpuset_cpus, cpuset_mems, unified, hugepages)| Resources {
            cpu_period: amounts.0,
            cpu_quota: amounts.1,
            cpu_shares: amounts.2,
            memory_limit_in_bytes: amounts.3,
            oom_score_adj: amounts.4,
            memory_swap_limit_in_bytes: amounts.5,
            cpuset_cpus,
            cpuset_mems,
            unified,
            hugepage_limits: hugepages
                .into_iter()
                .map(|(page_size, limit)| HugepageLimit { page_size, limit })
                .collect(),
        },
    )
}

/// One of each field.
fn full(base: i64, cpus: &str, unified: &str) -> Resources {
    Resources {
        cpu_period: base,
        cpu_quota: base + 1,
        cpu_shares: base + 2,
        memory_limit_in_bytes: base + 3,
        oom_score_adj: base + 4,
        memory_swap_limit_in_bytes: base + 5,
        cpuset_cpus: cpus.to_owned(),
        cpuset_mems: cpus.to_owned(),
        unified: [(unified.to_owned(), unified.to_owned())].into(),
        hugepage_limits: vec![HugepageLimit { page_size: "2MB".into(), limit: base as u64 }],
    }
}

fn message(resources: &Resources) -> Message {
    Message::parse(resources.encode_to_vec().into()).unwrap()
}

fn merged(sent: &Resources, answer: &Resources, reading: Reading) -> Resources {
    let mut merged = sent.clone();
    for edit in answered(sent, answer, reading) {
        apply(&mut merged, &edit);
    }
    merged
}

#[test]
fn an_answer_replaces_all_that_it_names() {
    let (sent, answer) = (full(10, "0-1", "a"), full(20, "2", "b"));
    let mut expected = full(20, "2", "b");
    expected.unified.extend(sent.unified.clone());
    expected.hugepage_limits.clone_from(&sent.hugepage_limits);
    assert_eq!(merged(&sent, &answer, Reading::default()), expected);
}

#[test]
fn an_empty_answer_clears_cpusets_and_nothing_else() {
    let sent = full(10, "0-1", "a");
    let expected =
        Resources { cpuset_cpus: String::new(), cpuset_mems: String::new(), ..sent.clone() };
    assert_eq!(merged(&sent, &Resources::default(), Reading::default()), expected);
    let upstream = Reading { zero_oom_score_adj: true };
    let expected = Resources { oom_score_adj: 0, ..expected };
    assert_eq!(merged(&sent, &Resources::default(), upstream), expected);
}

#[test]
fn numbers_that_mean_nothing_are_no_wish() {
    let sent = full(10, "0", "a");
    let answer = Resources {
        cpu_period: -1,
        cpu_quota: -1,
        cpu_shares: -1,
        memory_limit_in_bytes: -1,
        oom_score_adj: 1001,
        memory_swap_limit_in_bytes: -1,
        ..sent.clone()
    };
    let expected = Resources { cpu_quota: -1, ..sent.clone() };
    assert_eq!(merged(&sent, &answer, Reading { zero_oom_score_adj: true }), expected);
    let lowest = Resources { oom_score_adj: -1000, ..sent.clone() };
    assert_eq!(merged(&sent, &lowest, Reading::default()), lowest);
}

#[test]
fn an_update_overlays_what_it_names_but_the_oom_score() {
    let (known, update) = (full(10, "0-1", "a"), full(20, "2", "b"));
    let mut expected = full(20, "2", "b");
    expected.oom_score_adj = known.oom_score_adj;
    expected.unified.extend(known.unified.clone());
    expected.hugepage_limits.clone_from(&known.hugepage_limits);
    assert_eq!(overlaid(known.clone(), &update), expected);

    let cpuset = Resources { cpuset_cpus: "0-31".into(), ..Default::default() };
    let expected = Resources { cpuset_cpus: "0-31".into(), ..known.clone() };
    assert_eq!(overlaid(known.clone(), &cpuset), expected);
    assert_eq!(overlaid(known.clone(), &Resources::default()), known);
}

proptest! {
    #[test]
    fn both_protocols_agree(own in resources()) {
        let cri = cri::LinuxContainerResources::decode(&*own.encode_to_vec()).unwrap();
        prop_assert_eq!(read(&Message::parse(cri.encode_to_vec().into()).unwrap()).unwrap(), own);
    }

    #[test]
    fn an_edit_of_the_bytes_is_the_edit_of_the_message(
        sent in resources(),
        answer in resources(),
        zero_oom_score_adj: bool,
    ) {
        let reading = Reading { zero_oom_score_adj };
        let edits = answered(&sent, &answer, reading);
        for edit in &edits {
            prop_assert_ne!(&edit.from, &edit.to);
        }
        let mut message = message(&sent);
        write(&mut message, &edits).unwrap();
        prop_assert_eq!(message.is_changed(), !edits.is_empty());
        let result = merged(&sent, &answer, reading);
        prop_assert_eq!(read(&message).unwrap(), result.clone());
        // What was asked for once is not asked for again.
        prop_assert_eq!(answered(&result, &answer, reading), vec![]);
    }

    #[test]
    fn replacing_leaves_hugepages(sent in resources(), whole in resources()) {
        let mut same = message(&sent);
        replace(&mut same, &sent).unwrap();
        prop_assert!(!same.is_changed());
        let mut message = message(&sent);
        replace(&mut message, &whole).unwrap();
        let expected = Resources { hugepage_limits: sent.hugepage_limits, ..whole };
        prop_assert_eq!(read(&message).unwrap(), expected);
    }
}
