//! A connection to the API that can be cut.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Uri;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use wharf_testkit::cluster::Cluster;

/// Forwards connections until it is dropped.
pub(crate) struct Wire {
    connections: Arc<AtomicUsize>,
    cuts: watch::Sender<usize>,
    _carrier: JoinSet<()>,
}

impl Wire {
    /// A wire to the shared cluster, and a client that uses it.
    pub(crate) async fn new() -> (Self, Client) {
        let cluster = Cluster::shared().await.unwrap().unwrap();
        let file = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(file, &options).await.unwrap();
        let server = config.cluster_url.authority().unwrap().to_string();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = format!("https://{}", listener.local_addr().unwrap());
        config.cluster_url = here.parse::<Uri>().unwrap();

        let (counted, (cuts, cut)) = (Arc::<AtomicUsize>::default(), watch::channel(0));
        let connections = Arc::clone(&counted);
        let mut carrier = JoinSet::new();
        carrier.spawn(async move {
            let mut carried = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let (server, mut cut) = (server.clone(), cut.clone());
                cut.mark_unchanged();
                counted.fetch_add(1, Ordering::SeqCst);
                carried.spawn(async move {
                    let mut far = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        (Self { connections, cuts, _carrier: carrier }, wharf_cluster::client(&config).unwrap())
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Closes all connections.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}
