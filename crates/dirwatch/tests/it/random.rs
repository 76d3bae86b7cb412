//! Any sequence of operations on a tree, with looks at any time: the changes, from events alone,
//! add up to the files that exist.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
};

use proptest::prelude::*;

use crate::fixture::{Fixture, place, socket};

#[derive(Clone, Debug)]
enum Step {
    Socket(String),
    File(String),
    Folder(String),
    Link(&'static str, String),
    Remove(String),
    Move(String, String),
    /// Waits until the watch has seen all changes so far.
    Look,
    /// Runs the watch for a moment, which may end anywhere.
    Yield,
}

fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c", ".h"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn step() -> impl Strategy<Value = Step> {
    // The target of a symlink must not change: only a rescan sees that.
    let target = prop::sample::select(vec!["../fixed.sock", "nowhere", "."]);
    prop_oneof![
        5 => path().prop_map(Step::Socket),
        1 => path().prop_map(Step::File),
        4 => path().prop_map(Step::Folder),
        1 => (target, path()).prop_map(|(target, link)| Step::Link(target, link)),
        4 => path().prop_map(Step::Remove),
        4 => (path(), path()).prop_map(|(from, to)| Step::Move(from, to)),
        1 => Just(Step::Look),
        2 => Just(Step::Yield),
    ]
}

/// Steps that are impossible in the current tree are skipped.
fn perform(root: &Path, step: &Step) {
    match step {
        Step::Socket(path) => drop(UnixListener::bind(root.join(path))),
        Step::File(path) => drop(fs::write(root.join(path), "")),
        Step::Folder(path) => drop(fs::create_dir_all(root.join(path))),
        Step::Link(target, link) => drop(symlink(root.join(target), root.join(link))),
        Step::Remove(path) => {
            if fs::remove_file(root.join(path)).is_err() {
                drop(fs::remove_dir_all(root.join(path)));
            }
        }
        Step::Move(from, to) => drop(fs::rename(root.join(from), root.join(to))),
        Step::Look | Step::Yield => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changes_add_up_to_what_is_there(steps in prop::collection::vec(step(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut fixture = Fixture::sockets(place()).await;
            socket(&fixture.outside("fixed.sock"));
            for step in &steps {
                perform(&fixture.options.root, step);
                match step {
                    Step::Look => drop(fixture.settle().await),
                    Step::Yield => tokio::task::yield_now().await,
                    _ => {}
                }
            }
            fixture.settle().await;
            fixture.agrees_with_a_scan();
            assert_eq!(fixture.watch.rescans(), 1);
            fixture.watch.stop().await;
        });
    }
}
