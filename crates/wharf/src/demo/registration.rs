//! A plugin's life: seen, registered, killed, deregistered, and back.

use std::path::Path;

use anyhow::Context;
use wharf_registration::manager::EventKind;

use super::{children::Children, driver::NAME, node::Node, scene::Scene};

const COMES: [EventKind; 3] = [EventKind::Seen, EventKind::Validated, EventKind::Registered];
const GOES: [EventKind; 2] = [EventKind::Gone, EventKind::Deregistered];

pub(super) async fn play(
    scene: &mut Scene<'_>,
    node: &Node,
    folder: &Path,
    verbose: bool,
) -> anyhow::Result<()> {
    scene.act("a CSI driver and its registrar start, each a process");
    let mut children = Children::start(folder, verbose)?;
    scene.expect(&COMES).await?;
    let line = node.drivers.view().into_iter().next();
    let line = line.context("the driver is not in the table")?;
    scene.say(&format!(
        "driver {} says: node {}, room for {} volumes, topology {:?}",
        line.name, line.node_id, line.max_volumes, line.topology
    ));

    scene.act("the driver is killed (SIGKILL); its socket file stays behind");
    children.kill_driver().await?;
    node.connection(scene, NAME, false).await?;

    scene.act("the registrar is told to stop (SIGTERM)");
    children.stop().await?;
    scene.expect(&GOES).await?;

    scene.act("both come back");
    let children = Children::start(folder, verbose)?;
    scene.expect(&COMES).await?;
    node.connection(scene, NAME, true).await?;

    scene.act("the node is drained");
    children.stop().await?;
    scene.expect(&GOES).await?;
    node.drained().await
}
