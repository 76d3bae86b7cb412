//! Volumes that grow, to whole blocks.

use tonic::Code;
use wharf_proto::csi;

use crate::bench::{Bench, MIB, PoolKind};
use crate::client::{Usage, mounted, range, volume};
use crate::codes::refused;

/// The smallest XFS, which grows mounted with any capabilities.
const XFS_SIZE: u64 = 300 * MIB;
const BLOCK: u64 = 4096;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_expansion_rounds_as_the_controller_does() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let id = driver.create(volume("a", XFS_SIZE, mounted("xfs"))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted("xfs"));
    driver.bring_up(&usage).await.unwrap();
    let grown = driver.node_expand(&usage, XFS_SIZE + 1).await.unwrap();
    assert_eq!(grown, XFS_SIZE + BLOCK);
    assert_eq!(driver.expand(&id, XFS_SIZE + BLOCK + 1).await.unwrap(), XFS_SIZE + 2 * BLOCK);
    driver.take_down(&usage).await.unwrap();
    driver.bring_up(&usage).await.unwrap();
    let limited = csi::NodeExpandVolumeRequest {
        volume_id: id.clone(),
        volume_path: crate::client::text(&usage.target),
        capacity_range: range(XFS_SIZE + 2 * BLOCK + 1)
            .map(|range| csi::CapacityRange { limit_bytes: range.required_bytes + 1, ..range }),
        ..Default::default()
    };
    let answer = driver.node().node_expand_volume(limited).await;
    let said = refused("no whole block", answer, Code::OutOfRange);
    assert!(said.contains("capacity_range.limit_bytes"), "{said}");
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
}
