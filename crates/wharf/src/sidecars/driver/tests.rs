use prometheus_client::registry::Registry;
use wharf_proto::csi::{ProbeRequest, Topology};
use wharf_testkit::{
    csi_driver::{Answer, DriverScript, ScriptedDriver},
    relay::SocketRelay,
};

use super::*;

fn source(socket: PathBuf) -> DriverSource {
    let node = NodeFacts { place: true, capabilities: true };
    let options = DriverOptions { socket, timeout: Duration::from_secs(15), node };
    DriverSource::new(options, RpcMetrics::register(&mut Registry::default()))
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_never_comes_is_given_up_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let began = Instant::now();
    let error = source(socket.clone()).connect().await.unwrap_err().to_string();
    assert_eq!(began.elapsed().as_secs(), 30);
    assert!(error.contains(&format!("--csi-address={}", socket.display())), "{error}");
}

#[tokio::test]
async fn a_driver_that_refuses_or_has_no_name_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let good = DriverScript::new("csi.example.com");
    for (script, wanted) in [
        (
            good.clone().with("Probe", Answer::Error(Status::new(Code::FailedPrecondition, "no"))),
            "Probe of the CSI driver: rpc error: code = FailedPrecondition",
        ),
        (
            good.clone()
                .with("GetPluginCapabilities", Answer::Error(Status::new(Code::Internal, "no"))),
            "GetCapabilities of the CSI driver: rpc error: code = Internal",
        ),
        (DriverScript { name: String::new(), ..good }, "CSI driver name is empty"),
    ] {
        let driver = ScriptedDriver::serve(&socket, script);
        let error = format!("{:#}", source(socket.clone()).connect().await.unwrap_err());
        assert!(error.contains(wanted), "{error}");
        driver.stop().await;
    }
}

#[tokio::test]
async fn nothing_is_asked_of_another_driver_at_the_same_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let own = DriverScript::new("csi.example.com");
    let driver = ScriptedDriver::serve(&socket, own.clone());
    let source = source(socket.clone());
    let known = source.connect().await.unwrap();
    let asked = || async {
        let mut identity = known.driver.identity();
        let send = |request| async move { identity.probe(request).await };
        known.driver.call("Probe", send, ProbeRequest {}).await
    };
    asked().await.unwrap();
    let reconnected = || async {
        let generation = *known.known.borrow();
        assert!(lost(&known.anyone, generation).await);
    };

    // One that is back is asked once it has said that it is the same.
    driver.kill().await;
    known.disconnected().await;
    let driver = ScriptedDriver::serve(&socket, own);
    reconnected().await;
    // Nor do those who ask for what it can do, and wait for each other, hold that up.
    let capabilities = timeout(Duration::from_secs(5), known.driver.capabilities());
    tokio::select! {
        _ = source.changed(&known) => panic!("it is as it was"),
        answers = async { tokio::join!(capabilities, asked()) } => {
            drop((answers.0.unwrap().unwrap(), answers.1.unwrap()));
        }
    }
    driver.kill().await;
    let other = ScriptedDriver::serve(&socket, DriverScript::new("other.example.com"));
    reconnected().await;
    let found = tokio::select! {
        found = source.changed(&known) => found,
        answer = asked() => panic!("{answer:?}"),
    };
    assert_eq!(found.name, "other.example.com");
    // As often as it takes to learn who it is, on each of two connections.
    assert_eq!(other.calls("Probe"), 2);
    other.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_counts_as_away_until_it_answers() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, behind) = (folder.path().join("csi.sock"), folder.path().join("behind.sock"));
    let driver = ScriptedDriver::serve(&behind, DriverScript::new("csi.example.com"));
    let relay = SocketRelay::open(&socket, &behind).unwrap();
    let source = source(socket);
    let known = source.connect().await.unwrap();
    let hangs = async {
        relay.cut();
        let asked = known.driver.plugin_info();
        tokio::select! {
            answer = asked => panic!("{answer:?}"),
            () = known.wait_for(false) => {}
        }
        let absence = known.absence().unwrap();
        assert!(absence.ends_with("does not answer"), "{absence}");
        let cut_off = timeout(Duration::ZERO, known.disconnected()).await;
        assert!(cut_off.is_err(), "it may still work on calls");
        assert!(known.silence.since().unwrap().elapsed() >= QUIET, "given up early");
        relay.mend();
        known.wait_for(true).await;
        known.driver.plugin_info().await.unwrap();
    };
    tokio::select! {
        _ = source.changed(&known) => panic!("it is as it was"),
        () = hangs => {}
    }
    driver.stop().await;
}

#[tokio::test]
async fn a_driver_that_is_slow_is_asked_for_its_probe_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let script = DriverScript::new("csi.example.com");
    let driver = ScriptedDriver::serve(&socket, script);
    let source = source(socket);
    let known = source.connect().await.unwrap();
    driver.change(|script| drop(script.answers.insert("GetPluginInfo", Answer::Never)));
    let probes = driver.calls("Probe");
    let probed = async {
        for count in [1, 2] {
            driver.wait_for_calls("Probe", probes + count).await;
        }
    };
    let asked = async {
        tokio::select! {
            answer = known.driver.plugin_info() => panic!("{answer:?}"),
            () = known.wait_for(false) => panic!("it answers its Probe"),
            () = probed => {}
        }
    };
    tokio::select! {
        _ = source.changed(&known) => panic!("it is as it was"),
        () = asked => {}
    }
    driver.stop().await;
}

#[tokio::test]
async fn a_driver_that_comes_back_in_another_place_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let at = |zone: &str| {
        let mut script = DriverScript::new("csi.example.com");
        let segments = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        script.node.accessible_topology = Some(Topology { segments });
        script
    };
    let driver = ScriptedDriver::serve(&socket, at("a"));
    let source = source(socket.clone());
    let known = source.connect().await.unwrap();
    driver.stop().await;
    let back = ScriptedDriver::serve(&socket, at("a"));
    let changed = source.changed(&known);
    tokio::pin!(changed);
    let returned = async {
        let (mut link, first) = (known.anyone.link(), *known.known.borrow());
        link.wait_for(|state| ![NONE, first].contains(&generation(state))).await.map(drop)
    };
    tokio::select! {
        _ = &mut changed => panic!("it is where it was"),
        returned = returned => returned.unwrap(),
    }
    back.stop().await;
    let elsewhere = ScriptedDriver::serve(&socket, at("b"));
    let found = timeout(Duration::from_secs(10), changed).await.unwrap();
    assert_eq!(found.node.place, Some(BTreeMap::from([("zone".to_owned(), "b".to_owned())])));
    elsewhere.stop().await;
}
