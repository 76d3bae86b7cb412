use std::path::{Path, PathBuf};

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::{
    Throttle,
    patience::Patience,
    transport::{Transport, transport},
};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig file cannot be used.
    #[error("kubeconfig {path}: cannot be used; expected a file as `kubectl config view` shows it")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<KubeconfigError>,
    },
    /// There is no service account to use.
    #[error("no kubeconfig was given and this is no pod with a service account: give --kubeconfig")]
    InCluster(#[from] InClusterError),
    /// The kubeconfig wants the API server to be reached in a way that there is not here.
    #[error(
        "proxy-url {0} in the kubeconfig: the API server is reached without a proxy only; remove it, or give another kubeconfig"
    )]
    Proxy(String),
    /// The kubeconfig expects a server of a name that is none.
    #[error("tls-server-name {0:?} in the kubeconfig: expected a DNS name or an IP address")]
    ServerName(String),
    /// The configuration does not make a client.
    #[error("the Kubernetes client cannot be made from its configuration")]
    Client(#[source] Box<kube::Error>),
}

impl From<kube::Error> for ConnectError {
    fn from(error: kube::Error) -> Self {
        Self::Client(Box::new(error))
    }
}

/// A client from a kubeconfig file, or from the pod's service account where none is given. Nothing is dialled yet.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    client(&configuration(kubeconfig).await?)
}

/// The same with a limit on its requests.
pub async fn connect_throttled(
    kubeconfig: Option<&Path>,
    throttle: Throttle,
) -> Result<Client, ConnectError> {
    let config = configuration(kubeconfig).await?;
    Ok(builder(&config)?.with_layer(&Patience).with_layer(&throttle).build())
}

/// A client that reaches the API server over one connection. Where the server asks for a pause, a request waits and is sent
/// again.
pub fn client(config: &Config) -> Result<Client, ConnectError> {
    Ok(builder(config)?.with_layer(&Patience).build())
}

fn builder(config: &Config) -> Result<ClientBuilder<Transport>, ConnectError> {
    Ok(ClientBuilder::new(transport(config)?, &config.default_namespace))
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    Ok(match kubeconfig {
        Some(path) => {
            let unusable = |source| ConnectError::Kubeconfig {
                path: path.to_owned(),
                source: Box::new(source),
            };
            let file = Kubeconfig::read_from(path).map_err(unusable)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(unusable)?
        }
        None => Config::incluster()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let garbage = folder.path().join("garbage");
        std::fs::write(&garbage, "clusters: 7").unwrap();
        for path in [folder.path().join("missing"), garbage] {
            let Err(error) = connect(Some(&path)).await else { panic!("{path:?} was taken") };
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_way_to_the_server_that_there_is_not_is_named() {
        let config = |change: fn(&mut Config)| {
            let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
            change(&mut config);
            let Err(error) = client(&config) else { panic!("it was taken") };
            error.to_string()
        };
        let error = config(|it| it.proxy_url = Some("http://proxy:3128/".parse().unwrap()));
        assert!(error.starts_with("proxy-url http://proxy:3128/ in the kubeconfig"), "{error}");
        let error = config(|it| it.tls_server_name = Some("no name".to_owned()));
        assert!(error.starts_with("tls-server-name \"no name\" in the kubeconfig"), "{error}");
    }
}
