//! A reader that falls so far behind that the kernel drops events.

use std::fs;

use crate::bench::{Bench, places, remove, socket};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_kernel_dropped_is_found_by_a_scan() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        let path = |number: usize| bench.path(&format!("{number}.sock"));
        // More changes than fit between watch and reader; the watch waits, and reads no events.
        (0..600).for_each(|number| socket(&path(number)));
        (0..limit / 2 + 1000).for_each(|number| {
            let path = path(1000 + number % 2);
            socket(&path);
            remove(&path);
        });
        (0..300).for_each(|number| remove(&path(number)));
        socket(&path(2000));
        fs::create_dir(bench.path("d")).unwrap();
        socket(&bench.path("d/x.sock"));
        bench.settle().await;
        assert!(bench.watch.overflows() > 0);
        assert_eq!(bench.state.len(), 302);
        bench.agrees_with_a_scan();
        // The watches are whole again.
        let rescans = bench.watch.rescans();
        socket(&bench.path("d/y.sock"));
        remove(&bench.path("d/x.sock"));
        let mut heard = bench.settle().await;
        heard.sort();
        assert_eq!(heard, ["+d/y.sock", "-d/x.sock"]);
        assert_eq!(bench.watch.rescans(), rescans);
    }
}
