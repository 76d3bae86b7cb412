use serde_json::json;

use super::*;

const G: i64 = 1_000_000_000;

/// Sizes in G: the requested size, the claim's size, and the size in progress; 0 for none.
fn claim(asked: i64, has: i64, begun: i64, status: &str) -> PersistentVolumeClaim {
    let size = |size: i64| match size {
        0 => json!({}),
        size => json!({ "storage": format!("{size}G") }),
    };
    let statuses = if status.is_empty() { json!({}) } else { json!({ "storage": status }) };
    serde_json::from_value(json!({
        "spec": { "resources": { "requests": size(asked) } },
        "status": {
            "capacity": size(has),
            "allocatedResources": size(begun),
            "allocatedResourceStatuses": statuses,
        },
    }))
    .unwrap()
}

fn volume(size: i64) -> PersistentVolume {
    let capacity = json!({ "storage": format!("{size}G") });
    serde_json::from_value(json!({ "spec": { "capacity": capacity } })).unwrap()
}

#[test]
fn a_growth_is_begun_finished_or_given_up() {
    let controller = [CONTROLLER_IN_PROGRESS, CONTROLLER_INFEASIBLE];
    let node = [NODE_PENDING, NODE_IN_PROGRESS, NODE_INFEASIBLE];
    let [in_progress, infeasible] = controller;
    let [pending, node_progress, node_infeasible] = node;
    // The requested size, the claim's, the size in progress, its status; the volume's size; whether
    // the driver reported a failure; the target.
    for (asked, has, begun, status, size, failed, expected) in [
        // The volume is too small.
        (2, 1, 0, "", 1, false, Some(2)),
        (5, 3, 10, "", 3, false, Some(5)),
        (5, 3, 10, infeasible, 3, false, Some(5)),
        (5, 3, 10, infeasible, 3, true, Some(5)),
        (5, 3, 10, in_progress, 3, true, Some(5)),
        (5, 3, 10, in_progress, 3, false, Some(10)),
        (5, 3, 0, in_progress, 3, false, Some(5)),
        (10, 1, 3, pending, 3, false, None),
        (10, 1, 3, node_progress, 3, false, None),
        (10, 1, 5, pending, 3, false, Some(5)),
        (10, 1, 0, pending, 3, false, Some(10)),
        (10, 1, 3, node_infeasible, 3, false, Some(3)),
        (10, 1, 0, node_infeasible, 3, false, Some(10)),
        (10, 1, 5, "Unheard", 3, false, Some(10)),
        // The volume is large enough.
        (1, 0, 0, "", 1, false, Some(1)),
        (5, 3, 10, "", 10, false, Some(10)),
        (1, 0, 1, pending, 1, false, None),
        (5, 3, 10, node_progress, 10, false, None),
        (2, 1, 2, node_infeasible, 2, false, Some(2)),
        (5, 3, 10, in_progress, 10, false, Some(10)),
        (5, 3, 10, in_progress, 10, true, Some(10)),
        (5, 3, 10, infeasible, 10, false, Some(10)),
        (5, 3, 0, infeasible, 10, false, Some(5)),
        (5, 3, 10, "Unheard", 10, false, Some(5)),
    ] {
        let claim = claim(asked, has, begun, status);
        let found = target(&claim, &volume(size), true, failed);
        let row = (asked, has, begun, status, size, failed);
        assert_eq!(found, expected.map(|size: i64| Size(size * G)), "{row:?}");
    }
}

#[test]
fn a_node_that_failed_is_given_less_where_only_it_grows_volumes() {
    let claim = claim(5, 3, 10, NODE_INFEASIBLE);
    assert_eq!(target(&claim, &volume(10), false, false), Some(Size(5 * G)));
    assert_eq!(target(&claim, &volume(10), true, false), Some(Size(10 * G)));
}

#[test]
fn an_old_api_server_says_by_a_condition_that_it_is_the_node_s_turn() {
    let mut claim = claim(2, 1, 0, "");
    assert_eq!(target(&claim, &volume(2), true, false), Some(Size(2 * G)));
    let condition = json!({ "type": FILESYSTEM_PENDING, "status": "True" });
    claim.status.conditions = vec![serde_json::from_value(condition).unwrap()];
    assert_eq!(target(&claim, &volume(2), true, false), None);
    assert_eq!(target(&claim, &volume(1), true, false), Some(Size(2 * G)));
}

#[test]
fn a_claim_grows_when_it_asks_for_more_than_it_has() {
    assert!(grows(&claim(2, 1, 0, "")) && grows(&claim(2, 0, 0, "")));
    assert!(
        !grows(&claim(2, 2, 0, "")) && !grows(&claim(1, 2, 0, "")) && !grows(&claim(0, 0, 0, ""))
    );
    assert!(
        is_complete(&claim(2, 2, 0, ""), &volume(2))
            && !is_complete(&claim(2, 1, 0, ""), &volume(2))
    );
}
