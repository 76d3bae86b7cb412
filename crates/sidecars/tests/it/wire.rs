//! A wire to the API that can be cut.

use http::Uri;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use wharf_testkit::cluster::Cluster;

/// Carries connections until it is dropped.
pub(crate) struct Wire {
    cuts: watch::Sender<usize>,
    _carrier: JoinSet<()>,
}

impl Wire {
    /// A wire to the shared cluster, and a client at its end.
    pub(crate) async fn new() -> (Self, Client) {
        let cluster = Cluster::shared().await.unwrap().unwrap();
        let file = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(file, &options).await.unwrap();
        let server = config.cluster_url.authority().unwrap().to_string();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = format!("https://{}", listener.local_addr().unwrap());
        config.cluster_url = here.parse::<Uri>().unwrap();

        let (cuts, cut) = watch::channel(0);
        let mut carrier = JoinSet::new();
        carrier.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let (server, mut cut) = (server.clone(), cut.clone());
                cut.mark_unchanged();
                connections.spawn(async move {
                    let mut far = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        (Self { cuts, _carrier: carrier }, Client::try_from(config).unwrap())
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}
