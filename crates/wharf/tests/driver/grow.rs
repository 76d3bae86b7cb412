//! Expansion: rounded to whole blocks, and finished before a volume is copied.

use tonic::Code;
use wharf_proto::csi;

use crate::{
    bench::{Bench, MIB, PoolKind},
    client::{Usage, from_snapshot, from_volume, mounted, range, volume},
    codes::refused,
};

const SIZE: u64 = 16 * MIB;
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

#[tokio::test(flavor = "multi_thread")]
async fn an_expansion_that_was_cut_is_finished_before_a_copy() {
    for (nth, copy) in ["snapshot", "group", "clone"].into_iter().enumerate() {
        let Some(bench) = Bench::new(PoolKind::Copy) else { return };
        let point = ["fail:ExpandGrown", "fail:ExpandAnnounced", "fail:ExpandPromised"][nth];
        let driver = bench.start_with(&["--fault", point]).await;
        let id = driver.create(volume("a", SIZE, mounted(""))).await.unwrap().volume_id;
        driver.expand(&id, 2 * SIZE).await.unwrap_err();
        assert_eq!(bench.rows()[0].state, "expanding");
        let source = match copy {
            "snapshot" => from_snapshot(&driver.snapshot("s", &id).await.unwrap().snapshot_id),
            "group" => {
                let group = driver.group("g", &[&id]).await.unwrap();
                from_snapshot(&group.snapshots[0].snapshot_id)
            }
            _ => from_volume(&id),
        };
        let request = csi::CreateVolumeRequest {
            capacity_range: None,
            volume_content_source: source,
            ..volume("copy", 0, mounted(""))
        };
        let made = driver.create(request).await.unwrap();
        assert_eq!(made.capacity_bytes, i64::try_from(2 * SIZE).unwrap(), "{copy}");
        assert!(
            bench.rows().iter().all(|row| row.state.starts_with("ready")),
            "{:?}",
            bench.rows()
        );
        assert_eq!(driver.expand(&id, 2 * SIZE).await.unwrap(), 2 * SIZE);
        driver.stop().await;
    }
}
