//! A reader that falls so far behind that the kernel drops events.

use std::fs;

use crate::fixture::{Fixture, places, remove, socket};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_kernel_dropped_is_found_by_a_scan() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        let path = |number: usize| fixture.path(&format!("{number}.sock"));
        // More changes than the channel holds; the watch waits, and reads no events.
        (0..600).for_each(|number| socket(&path(number)));
        (0..limit / 2 + 1000).for_each(|number| {
            let path = path(1000 + number % 2);
            socket(&path);
            remove(&path);
        });
        (0..300).for_each(|number| remove(&path(number)));
        socket(&path(2000));
        fs::create_dir(fixture.path("d")).unwrap();
        socket(&fixture.path("d/x.sock"));
        fixture.settle().await;
        assert!(fixture.watch.overflows() > 0);
        assert_eq!(fixture.state.len(), 302);
        fixture.agrees_with_a_scan();
        // The watches are complete again.
        let rescans = fixture.watch.rescans();
        socket(&fixture.path("d/y.sock"));
        remove(&fixture.path("d/x.sock"));
        let mut heard = fixture.settle().await;
        heard.sort();
        assert_eq!(heard, ["+d/y.sock", "-d/x.sock"]);
        assert_eq!(fixture.watch.rescans(), rescans);
    }
}
