//! Claims and removals of a path.

use std::{
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixListener,
    },
    path::Path,
    sync::Barrier,
};

use wharf_uds::{ListenError, ListenOptions, Listener};

use crate::echo::{Folder, Message, Server, call, channel};

fn bind(path: &Path) -> Result<Listener, ListenError> {
    Listener::bind(path, &ListenOptions::default())
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn binds_with_its_mode_and_leaves_nothing_else() {
    let folder = Folder::new();
    let options = ListenOptions { mode: 0o666, ..ListenOptions::default() };
    let listener = Listener::bind(&folder.socket(), &options).unwrap();
    let mode = std::fs::metadata(folder.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o666);
    assert_eq!(names(&folder), ["plugin.sock"]);
    assert_eq!(listener.path(), folder.socket());
    assert!(listener.is_still_ours());
    drop(listener);
    assert!(names(&folder).is_empty());
}

#[tokio::test]
async fn takes_over_a_stale_socket() {
    let folder = Folder::new();
    drop(UnixListener::bind(folder.socket()).unwrap());
    assert!(folder.socket().exists(), "std leaves the file");
    let server = Server::start(&folder.socket());
    let channel = channel(&server.path);
    assert!(call(&channel, "/test.Echo/Echo", Message::of("a")).await.is_ok());
    server.stopped().await;
}

#[tokio::test]
async fn removes_the_draft_of_a_bind_that_was_cut_short() {
    let folder = Folder::new();
    drop(UnixListener::bind(folder.path().join(".plugin.sock.new")).unwrap());
    let _listener = bind(&folder.socket()).unwrap();
    assert_eq!(names(&folder), ["plugin.sock"]);
}

#[tokio::test]
async fn refuses_a_live_peer() {
    let folder = Folder::new();
    let live = UnixListener::bind(folder.socket()).unwrap();
    let error = bind(&folder.socket()).unwrap_err();
    assert!(matches!(error, ListenError::Live { .. }), "{error:?}");
    assert!(error.to_string().contains(folder.socket().to_str().unwrap()), "{error}");
    assert_eq!(names(&folder), ["plugin.sock"]);
    live.accept().unwrap();
}

#[tokio::test]
async fn refuses_what_is_not_a_socket() {
    let folder = Folder::new();
    std::fs::write(folder.socket(), "precious").unwrap();
    let error = bind(&folder.socket()).unwrap_err();
    assert!(matches!(error, ListenError::NotASocket { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(folder.socket()).unwrap(), "precious");

    let link = folder.path().join("link.sock");
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
    assert!(matches!(bind(&link), Err(ListenError::NotASocket { .. })));
}

#[tokio::test]
async fn names_a_missing_folder() {
    let folder = Folder::new();
    let error = bind(&folder.path().join("missing/plugin.sock")).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    assert!(matches!(error, ListenError::Folder { .. }));
}

#[tokio::test]
async fn removes_the_path_only_if_it_is_ours() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    std::fs::remove_file(folder.socket()).unwrap();
    let replacement = UnixListener::bind(folder.socket()).unwrap();
    server.stopped().await;
    assert!(std::fs::metadata(folder.socket()).unwrap().file_type().is_socket());

    let server = Server::start(&folder.path().join("other.sock"));
    std::fs::rename(folder.path().join("other.sock"), folder.path().join("moved.sock")).unwrap();
    std::fs::write(folder.path().join("other.sock"), "precious").unwrap();
    server.stopped().await;
    assert!(folder.path().join("other.sock").exists());
    drop(replacement);
}

#[tokio::test]
async fn knows_that_it_was_replaced() {
    let folder = Folder::new();
    let listener = bind(&folder.socket()).unwrap();
    std::fs::remove_file(folder.socket()).unwrap();
    assert!(!listener.is_still_ours());
    // The inode's number must not come back while the first socket lives.
    let others: Vec<_> = (0..50)
        .map(|_| {
            let other = UnixListener::bind(folder.socket()).unwrap();
            assert!(!listener.is_still_ours());
            std::fs::remove_file(folder.socket()).unwrap();
            other
        })
        .collect();
    drop(others);
}

#[tokio::test]
async fn a_path_over_107_bytes_can_be_served_and_dialled() {
    let folder = Folder::new();
    let long = folder.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&long).unwrap();
    let server = Server::start(&long.join("plugin.sock"));
    let channel = channel(&server.path);
    assert_eq!(call(&channel, "/test.Echo/Echo", Message::of("a")).await.unwrap().payload, b"a");
    assert!(matches!(bind(&server.path), Err(ListenError::Live { .. })));
    server.stopped().await;
    assert!(!long.join("plugin.sock").exists());
}

/// Many listeners start at once on the path of a dead socket: exactly one gets the path, and keeps
/// it.
#[tokio::test]
async fn of_many_that_start_at_once_one_wins() {
    const STARTERS: usize = 8;
    for _ in 0..25 {
        let folder = Folder::new();
        drop(UnixListener::bind(folder.socket()).unwrap());
        let (runtime, barrier) = (tokio::runtime::Handle::current(), Barrier::new(STARTERS));
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let start = || {
                let _inside = runtime.enter();
                barrier.wait();
                bind(&folder.socket())
            };
            let starters: Vec<_> = (0..STARTERS).map(|_| scope.spawn(start)).collect();
            starters.into_iter().map(|starter| starter.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        assert!(won[0].as_ref().unwrap().is_still_ours());
        assert!(lost.iter().all(|lost| matches!(lost, Err(ListenError::Live { .. }))));
    }
}
