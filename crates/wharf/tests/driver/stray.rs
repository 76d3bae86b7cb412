//! Foreign files and folders in the pool's own folders: none of them keeps the driver from
//! starting.

use crate::{
    bench::{Bench, MIB, PoolKind},
    client::{Usage, mounted, volume},
};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_foreign_in_the_pool_stops_a_start() {
    let Some(bench) = Bench::new(PoolKind::Copy) else { return };
    let driver = bench.start().await;
    let id = driver.create(volume("a", 16 * MIB, mounted("ext4"))).await.unwrap().volume_id;
    let usage = Usage::new(&bench, "a", &id, mounted("ext4"));
    driver.bring_up(&usage).await.unwrap();
    driver.take_down(&usage).await.unwrap();
    driver.stop().await;
    for folder in ["volumes", "snapshots", "partial", "undo", "quarantine", "ephemeral", "reserve"]
    {
        for name in ["foreign", "other.img", "other.e2undo"] {
            let path = bench.images().join(folder).join(name);
            std::fs::create_dir_all(path.join("deep")).unwrap();
            std::fs::write(path.join("file"), "content").unwrap();
        }
        let dangling = bench.images().join(folder).join("dangling");
        std::os::unix::fs::symlink("/nowhere/at/all", dangling).unwrap();
        std::fs::write(bench.images().join(folder).join("file"), "content").unwrap();
    }
    for lost in [false, true] {
        if lost {
            std::fs::remove_file(bench.images().join("state.redb")).unwrap();
        }
        let driver = bench.start().await;
        assert_eq!(driver.list().await.unwrap(), [id.as_str()], "state lost: {lost}");
        driver.bring_up(&usage).await.unwrap();
        driver.take_down(&usage).await.unwrap();
        driver.stop().await;
    }
    // Folders are put aside and never emptied.
    let aside = bench.images().join("quarantine").read_dir().unwrap().map(Result::unwrap);
    let files = aside.filter(|entry| entry.path().join("file").exists()).count();
    assert!(files >= 9, "{files} folders are kept");
    assert_eq!(bench.images().join("partial").read_dir().unwrap().count(), 0);
}
