//! Any sequence of things done to a tree, with looks at any time: the changes add up to what is
//! there, through events alone.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use proptest::prelude::*;

use crate::bench::{Bench, place, socket};

#[derive(Clone, Debug)]
enum Step {
    Socket(String),
    File(String),
    Folder(String),
    Link(&'static str, String),
    Remove(String),
    Move(String, String),
    /// Lets the watch see what was done so far.
    Look,
    /// Lets the watch run for a moment, which may end anywhere.
    Yield,
}

fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "c", ".h"]);
    prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn step() -> impl Strategy<Value = Step> {
    // What a link points to must not change: only a rescan sees that.
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

/// Many steps cannot be done where they come; that is as good as not coming.
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
            let mut bench = Bench::sockets(place()).await;
            socket(&bench.outside("fixed.sock"));
            for step in &steps {
                perform(&bench.options.root, step);
                match step {
                    Step::Look => drop(bench.settle().await),
                    Step::Yield => tokio::task::yield_now().await,
                    _ => {}
                }
            }
            bench.settle().await;
            bench.agrees_with_a_scan();
            assert_eq!(bench.watch.rescans(), 1);
            bench.watch.stop().await;
        });
    }
}
