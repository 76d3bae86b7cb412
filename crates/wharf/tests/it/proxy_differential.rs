//! One script of CRI calls through koord-runtime-proxy and through `wharf proxy`: the same fields
//! reach runtime and hook server, except for the table of differences.

mod differences;
mod lane;
mod script;
mod seen;
mod step;

use std::collections::BTreeSet;

use self::{
    differences::{DIFFERENCES, Difference},
    lane::{Lane, Proxy, Server},
    script::script,
    seen::Seen,
};

const V1: &str = "runtime.v1";
const V1ALPHA2: &str = "runtime.v1alpha2";

#[tokio::test]
async fn the_same_fields_arrive() {
    let runs = [
        (Server::Koordlet, V1),
        (Server::Koordlet, V1ALPHA2),
        (Server::Echo, V1),
        (Server::Terse, V1),
        (Server::Terse, V1ALPHA2),
        (Server::Empty, V1),
        (Server::Failing, V1),
    ];
    let (mut unexplained, mut met) = (Vec::new(), BTreeSet::new());
    for (server, version) in runs {
        let Some(koord) = played(Proxy::Koord, server, version).await else { return };
        let Some(wharf) = played(Proxy::Wharf, server, version).await else { return };
        for (path, theirs, ours) in koord.differences(&wharf) {
            let explains =
                |(_, row): &(usize, &Difference)| row.explains(server, &path, &theirs, &ours);
            match DIFFERENCES.iter().enumerate().find(explains) {
                Some((number, _)) => drop(met.insert(number)),
                None => unexplained
                    .push(format!("{server:?} {version} {path}: theirs {theirs:?}, ours {ours:?}")),
            }
        }
        if server == Server::Koordlet {
            [&koord, &wharf].into_iter().for_each(koordlet_was_heard);
        }
        if matches!(server, Server::Echo | Server::Empty) {
            envs_are_as_they_were(&wharf);
        }
        if server == Server::Echo {
            failed_calls_left_nothing(&wharf);
        }
        if server == Server::Empty {
            for step in script() {
                assert!(wharf.untouched.contains(step.name), "{} was changed", step.name);
            }
        }
    }
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    let rows = DIFFERENCES.iter().enumerate();
    let stale: Vec<_> = rows.filter(|(number, _)| !met.contains(number)).collect();
    assert!(stale.is_empty(), "not met: {stale:#?}");
}

async fn played(proxy: Proxy, server: Server, version: &str) -> Option<Seen> {
    let lane = Lane::start(proxy, server).await?;
    let mut script = script();
    if server == Server::Failing {
        // Without its first sandbox the peer dies of the second step.
        script.truncate(1);
    }
    Some(lane.play(version, &script).await)
}

/// What a hook server that changes nothing must not change.
fn envs_are_as_they_were(wharf: &Seen) {
    // Base64, as JSON has bytes. Theirs come in any order, and each name once.
    assert_eq!(wharf.envs["create plain"], ["B=Mg==", "A=MQ==", "B=Mw=="]);
}

/// What is remembered is of those calls that the runtime agreed to.
fn failed_calls_left_nothing(wharf: &Seen) {
    let update = "update after failing: runtime UpdateContainerResources/linux";
    assert_eq!(wharf.at(&format!("{update}/cpu_shares")), "\"204\"");
    assert_eq!(wharf.at(&format!("{update}/cpu_period")), "\"50000\"");
}

/// That a hook server was asked at all, and that its answers count.
fn koordlet_was_heard(seen: &Seen) {
    let resources = [
        ("create ls", "cpuset_cpus", "\"1\""),
        ("create be", "cpuset_cpus", ""),
        ("create be", "cpu_shares", "\"512\""),
        ("create be", "cpu_quota", "\"100000\""),
        ("create be", "memory_limit_in_bytes", "\"2147483648\""),
        ("create lsr", "cpuset_cpus", "\"2-3\""),
        ("create lsr", "cpu_quota", "\"-1\""),
        ("create skipped", "cpuset_cpus", "\"0-1\""),
    ];
    for (step, field, wanted) in resources {
        let path = format!("{step}: runtime CreateContainer/config/linux/resources/{field}");
        assert_eq!(seen.at(&path), wanted, "{path}");
    }
    let gpu = "create gpu: runtime CreateContainer/config/envs/NVIDIA_VISIBLE_DEVICES";
    assert_eq!(seen.at(gpu), "\"MCwy\"", "0,2");
}
