//! Other files in the folder, and plugins with faulty answers.

use std::{fs, os::unix::fs::symlink, os::unix::net::UnixListener, path::Path, time::Duration};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use wharf_registration::manager::State;
use wharf_testkit::plugin::{Answer, PluginScript, Transport};

use crate::support::{Fixture, Log, soon};

#[tokio::test]
async fn what_is_no_socket_of_a_plugin_is_left_alone() {
    let mut fixture = Fixture::start().await;
    let path = |name: &str| fixture.path(name);
    fs::write(path("file.sock"), "no socket").unwrap();
    fs::create_dir_all(path("folder.sock")).unwrap();
    symlink(path("loop-b.sock"), path("loop-a.sock")).unwrap();
    symlink(path("loop-a.sock"), path("loop-b.sock")).unwrap();
    symlink("nowhere", path("dangling.sock")).unwrap();
    symlink(".", path("folder.sock/self")).unwrap();
    fs::create_dir_all(path(".hidden/sub")).unwrap();
    fs::create_dir_all(path("sub/.hidden")).unwrap();
    let hidden: Vec<_> =
        [".a.sock", ".hidden/a.sock", ".hidden/sub/a.sock", "sub/.hidden/a.sock", "sub/.a.sock"]
            .map(|name| fixture.plugin(name, PluginScript::csi("hidden")))
            .into();
    let _plugin = fixture.registered("sub/b.sock", "csi.example.com").await;
    fixture.settled_with(&["csi.example.com"]).await;
    assert!(hidden.iter().all(|plugin| plugin.calls().get_info == 0));
    assert_eq!(fixture.manager.plugins().len(), 1);
    assert!(fixture.path("file.sock").is_file() && fixture.path("folder.sock").is_dir());
}

/// A new plugin has ten seconds to answer, so this test takes a little longer.
#[tokio::test]
async fn a_plugin_that_does_not_answer_fails_alone_and_is_registered_once_made_again() {
    let mut fixture = Fixture::start().await;
    let (log, _guard) = Log::start();
    let transport = |transport| PluginScript { transport, ..PluginScript::csi("bad") };
    let answer = |get_info| PluginScript { get_info, ..PluginScript::csi("bad") };
    let faults = [
        ("mute.sock", transport(Transport::Mute), "dial failed", "did not answer in"),
        ("garbage.sock", transport(Transport::Garbage), "RPC GetInfo", "code = Unavailable"),
        ("hang-up.sock", transport(Transport::HangUp), "RPC GetInfo", "code = Unavailable"),
        ("never.sock", answer(Answer::Never), "RPC GetInfo", "code = DeadlineExceeded"),
        (
            "late.sock",
            answer(Answer::After(Duration::from_millis(1500))),
            "RPC GetInfo",
            "code = DeadlineExceeded",
        ),
        (
            "error.sock",
            answer(Answer::Error(tonic::Status::internal("who is asking?"))),
            "RPC GetInfo",
            "code = Internal desc = who is asking?",
        ),
    ];
    let sockets: Vec<_> = faults.iter().map(|(socket, ..)| *socket).chain(["dead.sock"]).collect();
    let bad: Vec<_> =
        faults.iter().map(|(socket, script, ..)| fixture.plugin(socket, script.clone())).collect();
    drop(UnixListener::bind(fixture.path("dead.sock")).unwrap());
    let good = fixture.registered("good.sock", "good").await;

    fixture
        .settled(|plugins| plugins.iter().filter(|it| it.state == State::Failed).count() == 7)
        .await;
    let dead = [("dead.sock", "dial failed", "Connection refused")];
    let texts = faults.iter().map(|(socket, _, step, text)| (*socket, *step, *text)).chain(dead);
    for (socket, step, text) in texts {
        let error = fixture.view(socket).unwrap().error.unwrap();
        assert!(error.contains(step) && error.contains(text), "{socket}: {error}");
        assert!(error.contains(fixture.path(socket).to_str().unwrap()), "{error}");
        assert!(log.text().contains(&format!("{error:?}")), "{socket}: {}", log.text());
    }
    assert!(bad.iter().all(|plugin| plugin.calls().verdicts.is_empty()), "they hear nothing");
    assert_eq!(fixture.handler.steps(good.path()).len(), 2);
    assert_eq!(fixture.handler.calls().len(), 2);

    drop(bad);
    let mended: Vec<_> =
        sockets.iter().map(|socket| fixture.plugin(socket, PluginScript::csi("mended"))).collect();
    for plugin in &mended {
        plugin.wait_for_verdict(true).await;
    }
    let mut names = vec!["good"];
    names.extend(["mended"; 7]);
    fixture.settled_with(&names).await;
}

#[tokio::test]
async fn a_plugin_that_needs_a_moment_is_asked_again() {
    let mut fixture = Fixture::start().await;
    let error = Answer::Error(tonic::Status::unavailable("still starting"));
    for slow in [
        PluginScript { get_info: error, ..PluginScript::csi("slow") },
        PluginScript { get_info: Answer::Never, ..PluginScript::csi("slow") },
        PluginScript { transport: Transport::HangUp, ..PluginScript::csi("slow") },
    ] {
        let counted = slow.transport == Transport::Grpc;
        let plugin = fixture.plugin("slow.sock", slow);
        if counted {
            plugin.wait_for(|calls| calls.get_info >= 2).await;
        }
        plugin.change(|script| {
            script.transport = Transport::Grpc;
            script.get_info = Answer::AtOnce;
        });
        plugin.wait_for_verdict(true).await;
        fixture.settled_with(&["slow"]).await;
        plugin.stop().await;
        fixture.settled_with(&[]).await;
    }
}

#[tokio::test]
async fn a_socket_that_is_bound_before_it_listens_is_waited_for() {
    let mut fixture = Fixture::start().await;
    let path = fixture.path("a.sock");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    fixture.settled(|plugins| plugins.iter().any(|it| it.state == State::Registering)).await;
    rustix::net::listen(&socket, 1).unwrap();
    let listener = UnixListener::from(socket);
    let accepting = tokio::task::spawn_blocking(move || listener.accept().map(drop));
    soon(accepting).await.unwrap().expect("it is dialled without another event");
}

#[tokio::test]
async fn a_socket_made_again_does_not_wait_for_its_back_off() {
    let mut fixture = Fixture::start().await;
    let stranger = fixture.plugin("a.sock", PluginScript::of("Strange", "a", &["1.0.0"]));
    // After these failures the next attempt would be eight seconds away.
    stranger.wait_for(|calls| calls.verdicts.len() == 5).await;
    fixture.settled(|plugins| plugins[0].state == State::Failed).await;
    let before = std::time::Instant::now();
    drop(stranger);
    let _mended = fixture.registered("a.sock", "a").await;
    assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
    fixture.settled_with(&["a"]).await;
}

#[tokio::test]
async fn a_plugin_that_dies_and_leaves_its_socket_stays_until_the_socket_goes() {
    let mut fixture = Fixture::start().await;
    let plugin = fixture.registered("a.sock", "a").await;
    let path = plugin.path().to_owned();
    plugin.kill().await;
    fixture.settled_with(&["a"]).await;
    fs::remove_file(&path).unwrap();
    fixture.settled_with(&[]).await;
}

#[tokio::test]
async fn a_linked_socket_is_a_plugin() {
    let mut fixture = Fixture::start().await;
    let elsewhere = crate::support::folder();
    let plugin = wharf_testkit::plugin::ScriptedPlugin::serve(
        &elsewhere.path().join("a.sock"),
        PluginScript::csi("a"),
    );
    let link: &Path = &fixture.path("link.sock");
    symlink(plugin.path(), link).unwrap();
    fixture.settled_with(&["a"]).await;
    fs::remove_file(link).unwrap();
    fixture.settled_with(&[]).await;
}
