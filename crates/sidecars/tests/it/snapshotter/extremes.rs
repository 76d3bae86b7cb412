use serde_json::json;

use crate::extremes::{fill, is_filled, longest};
use crate::snapshots::{BEING_DELETED, Bench, CONTENTS};

#[tokio::test]
async fn a_snapshot_is_taken_and_deleted_whatever_it_is_called() {
    let Some(mut bench) = Bench::new("snap-extreme").await else { return };
    bench.snapshotter.extra_create_metadata = true;
    let name = longest("snap-extreme");
    bench.class(|it| it["metadata"]["name"] = json!(name)).await;
    bench
        .content(|it| {
            it["metadata"]["name"] = json!(name);
            it["spec"]["volumeSnapshotClassName"] = json!(name);
            it["spec"]["volumeSnapshotRef"]["name"] = json!(name);
            fill(it);
        })
        .await;
    bench.start_snapshotter();
    let taken =
        [bench.mark_line(), bench.create_line(), bench.taken_line(true), bench.unmark_line()];
    let lines = bench.lines(taken.len()).await;
    let lines: Vec<String> = lines.iter().map(|line| line.replace(&name, bench.name)).collect();
    assert_eq!(lines, taken);
    let path = format!("{CONTENTS}/{name}");
    let content = bench.get(CONTENTS, &name).await.unwrap();
    assert!(is_filled(&content));
    let [call] = &bench.driver.taken()[..] else { panic!() };
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshot/name"], name);
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshotcontent/name"], name);

    bench.journal.clear();
    bench.patch_at(&path, json!({ "metadata": { "annotations": { BEING_DELETED: "yes" } } })).await;
    bench.delete_at(&path).await;
    assert_eq!(bench.about(&name, 1).await, [bench.release_line()]);
    assert_eq!(bench.get(CONTENTS, &name).await, None);
    assert_eq!(bench.driver.last_delete().snapshot_id, "v-snap");
    bench.stop().await;
}
