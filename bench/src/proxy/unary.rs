//! The time that the proxy adds to a single call.

use std::path::Path;

use anyhow::Result;

use super::{
    Counts,
    calls::{self, framed},
    client::Client,
    hooks, records,
    rig::{BUSY_POLL, Rig},
    side::{Side, take_turns},
};
use crate::report::Report;

const ADDED: f64 = 60.0;
const ADDED_BESIDE_KOORD: f64 = 0.2;
const SLOWEST: f64 = 2.0;
const ADDED_BEYOND_HOOK: f64 = 150.0;
const KOORD: &str = "koord-runtime-proxy";

/// Measures a call that the proxy does not look into.
pub(super) async fn measure_carried(
    binary: &Path,
    counts: &Counts,
    report: &mut Report,
) -> Result<()> {
    let Counts { rounds, unary, .. } = *counts;
    report.section(&format!(
        "Version, --busy-poll {BUSY_POLL}, {unary} calls one by one, median of {rounds} rounds"
    ));
    let rig = Rig::new(binary)?;
    let runtime = rig.runtime(0).await?;
    let side = |client| Side::new(client, calls::VERSION, framed(&calls::version()));
    let mut direct = side(runtime.client().await?);
    let proxy = rig.busy_proxy("proxy")?;
    let mut ours = side(proxy.client().await?);
    let relay = rig.relay().await?;
    let mut copied = side(relay.client().await?);
    let koord = rig.koord().await?;
    let mut theirs = match &koord {
        Some(koord) => Some(side(Client::dial(&koord.socket).await?)),
        None => None,
    };
    let mut sides = vec![&mut direct, &mut copied, &mut ours];
    sides.extend(&mut theirs);
    take_turns(&mut sides, rounds, unary).await?;

    let added = ours.added(&direct);
    report.show("direct, p50", direct.p50(), "us");
    report.show("direct, p99", direct.p99(), "us");
    report.show("a relay that only copies bytes, added p50", copied.added(&direct), "us");
    report.show("wharf, p50", ours.p50(), "us");
    report.show("wharf, p99", ours.p99(), "us");
    report.at_most("wharf, added p50", added, ADDED, "us");
    let slowest = ours.beside(&direct, |own, direct| own.p99() / direct.p99());
    report.at_most("wharf, p99 beside direct", slowest, SLOWEST, "x");
    let beside = format!("wharf's added p50 beside that of {KOORD}");
    match &theirs {
        None => report.not_measured(&beside, "needs root, and the peer"),
        Some(theirs) => {
            let koord_added = theirs.added(&direct);
            report.show(&format!("{KOORD}, added p50"), koord_added, "us");
            report.show(&format!("{KOORD}, p99"), theirs.p99(), "us");
            report.at_most(&beside, added / koord_added, ADDED_BESIDE_KOORD, "x");
        }
    }
    Ok(())
}

/// Measures a call with a hook server that changes nothing.
pub(super) async fn measure_hooked(
    binary: &Path,
    counts: &Counts,
    report: &mut Report,
) -> Result<()> {
    let Counts { rounds, hooked, .. } = *counts;
    report.section(&format!(
        "CreateContainer with a hook server, --busy-poll {BUSY_POLL}, {hooked} calls one by one, median of {rounds} rounds"
    ));
    let rig = Rig::new(binary)?;
    let runtime = rig.runtime(0).await?;
    let hook_server = rig.hook_server().await?;
    let question = framed(&calls::question());
    let mut hook = Side::new(hook_server.client().await?, calls::CREATE_HOOK, question);
    hooks::register(&rig.hooks(), &hook_server.socket)?;
    let client = runtime.client().await?;
    // Proxies that start later learn of the pod from the runtime.
    let pod = records::run_pod(&client, 0).await?;

    let create = framed(&calls::create_container(0, 0, &pod));
    let side = |client| Side::new(client, calls::CREATE_CONTAINER, create.clone());
    let mut direct = side(client);
    let proxy = rig.busy_proxy("proxy")?;
    let mut ours = side(proxy.client().await?);
    let koord = rig.koord().await?;
    let mut theirs = match &koord {
        Some(koord) => Some(side(Client::dial(&koord.socket).await?)),
        None => None,
    };
    let mut sides = vec![&mut direct, &mut hook, &mut ours];
    sides.extend(&mut theirs);
    take_turns(&mut sides, rounds, hooked).await?;

    let beyond = |side: &Side| side.added(&direct) - hook.p50();
    report.show("bytes of the call", create.len() as f64, "");
    report.show("direct, p50", direct.p50(), "us");
    report.show("the hook server's own round trip, p50", hook.p50(), "us");
    report.show("wharf, p50", ours.p50(), "us");
    report.show("wharf, p99", ours.p99(), "us");
    report.at_most("wharf, added p50 beyond the hook", beyond(&ours), ADDED_BEYOND_HOOK, "us");
    let what = format!("{KOORD}, added p50 beyond the hook");
    match &theirs {
        None => report.not_measured(&what, "needs root, and the peer"),
        Some(theirs) => report.show(&what, beyond(theirs), "us"),
    }
    Ok(())
}
