use serde_json::json;

use crate::{
    extremes::{fill, is_filled, longest},
    snapshots::{BEING_DELETED, CONTENTS, Fixture},
};

#[tokio::test]
async fn a_snapshot_is_taken_and_deleted_whatever_it_is_called() {
    let Some(mut fixture) = Fixture::new("snap-extreme").await else { return };
    fixture.snapshotter.extra_create_metadata = true;
    let name = longest("snap-extreme");
    fixture.class(|it| it["metadata"]["name"] = json!(name)).await;
    fixture
        .content(|it| {
            it["metadata"]["name"] = json!(name);
            it["spec"]["volumeSnapshotClassName"] = json!(name);
            it["spec"]["volumeSnapshotRef"]["name"] = json!(name);
            fill(it);
        })
        .await;
    fixture.start_snapshotter();
    let taken = [
        fixture.mark_line(),
        fixture.create_line(),
        fixture.taken_line(true),
        fixture.unmark_line(),
    ];
    let lines = fixture.lines(taken.len()).await;
    let lines: Vec<String> = lines.iter().map(|line| line.replace(&name, fixture.name)).collect();
    assert_eq!(lines, taken);
    let path = format!("{CONTENTS}/{name}");
    let content = fixture.get(CONTENTS, &name).await.unwrap();
    assert!(is_filled(&content));
    let [call] = &fixture.driver.taken()[..] else { panic!() };
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshot/name"], name);
    assert_eq!(call.parameters["csi.storage.k8s.io/volumesnapshotcontent/name"], name);

    fixture.journal.clear();
    fixture
        .patch_at(&path, json!({ "metadata": { "annotations": { BEING_DELETED: "yes" } } }))
        .await;
    fixture.delete_at(&path).await;
    assert_eq!(fixture.about(&name, 1).await, [fixture.release_line()]);
    assert_eq!(fixture.get(CONTENTS, &name).await, None);
    assert_eq!(fixture.driver.last_delete().snapshot_id, "v-snap");
    fixture.stop().await;
}
