//! Regular files, as in a folder of configuration.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
};

use wharf_dirwatch::{Depth, Kind};

use crate::fixture::{Fixture, place, places, remove, socket};

#[tokio::test]
async fn written_moved_over_and_removed() {
    for place in places() {
        let mut fixture = Fixture::start(place, Kind::File, Depth::Folder, |_| {});
        fixture.sync().await;
        let path = fixture.path("a.json");
        fs::write(&path, "{}").unwrap();
        socket(&fixture.path("a.sock"));
        assert_eq!(fixture.settle().await, ["+a.json"]);
        fs::write(&path, "{ }").unwrap();
        assert_eq!(fixture.settle().await, ["*a.json"]);
        fs::write(fixture.path(".tmp"), "{}").unwrap();
        fs::rename(fixture.path(".tmp"), &path).unwrap();
        assert_eq!(fixture.settle().await, ["*a.json"]);
        remove(&path);
        assert_eq!(fixture.settle().await, ["-a.json"]);
    }
}

/// Two writes of the same size within one tick of the filesystem's clock leave the same times.
#[tokio::test]
async fn a_write_in_the_same_tick_is_seen() {
    for place in places() {
        let mut fixture = Fixture::start(place, Kind::File, Depth::Folder, |_| {});
        fixture.sync().await;
        let path = fixture.path("a.json");
        fs::write(&path, "0").unwrap();
        assert_eq!(fixture.settle().await, ["+a.json"]);
        for digit in 1..10 {
            fs::write(&path, digit.to_string()).unwrap();
            assert_eq!(fixture.settle().await, ["*a.json"], "write {digit}");
        }
    }
}

#[tokio::test]
async fn another_mode_is_a_change() {
    let mut fixture = Fixture::start(place(), Kind::File, Depth::Folder, |_| {});
    fixture.sync().await;
    let path = fixture.path("a.json");
    fs::write(&path, "{}").unwrap();
    assert_eq!(fixture.settle().await, ["+a.json"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(fixture.settle().await, ["*a.json"]);
}

#[tokio::test]
async fn a_file_that_is_opened_for_writing_and_left_alone_is_no_change() {
    let mut fixture = Fixture::start(place(), Kind::File, Depth::Folder, |options| {
        fs::create_dir_all(&options.root).unwrap();
        let file = fs::File::create(options.root.join("old.json")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    });
    fixture.sync().await;
    let mut file = OpenOptions::new().append(true).open(fixture.path("old.json")).unwrap();
    drop(OpenOptions::new().append(true).open(fixture.path("old.json")).unwrap());
    assert_eq!(fixture.settle().await, [""; 0]);
    file.write_all(b"more").unwrap();
    drop(file);
    assert_eq!(fixture.settle().await, ["*old.json"]);
}

/// The kubelet writes the files of a ConfigMap into a new hidden folder, and renames a symlink to
/// it into place.
#[tokio::test]
async fn a_config_map_that_is_replaced() {
    for place in places() {
        let mut fixture = Fixture::start(place, Kind::File, Depth::Folder, |_| {});
        fixture.sync().await;
        for (version, seen) in [("..1", "+a.json"), ("..2", "*a.json"), ("..3", "*a.json")] {
            fs::create_dir(fixture.path(version)).unwrap();
            fs::write(fixture.path(version).join("a.json"), version).unwrap();
            symlink(version, fixture.path("..data_tmp")).unwrap();
            fs::rename(fixture.path("..data_tmp"), fixture.path("..data")).unwrap();
            if version == "..1" {
                symlink("..data/a.json", fixture.path("a.json")).unwrap();
            }
            assert_eq!(fixture.settle().await, [seen], "{version}");
        }
    }
}
