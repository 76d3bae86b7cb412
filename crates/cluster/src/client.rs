use std::path::{Path, PathBuf};

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::{Throttle, patience::Patience};

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
///
/// Where the API server asks for a pause, a request waits and is sent again.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let builder = ClientBuilder::try_from(configuration(kubeconfig).await?)?;
    Ok(builder.with_layer(&Patience).build())
}

/// The same with a limit on its requests.
pub async fn connect_throttled(
    kubeconfig: Option<&Path>,
    throttle: Throttle,
) -> Result<Client, ConnectError> {
    let builder = ClientBuilder::try_from(configuration(kubeconfig).await?)?;
    Ok(builder.with_layer(&Patience).with_layer(&throttle).build())
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let mut config = match kubeconfig {
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
    };
    // A watch is silent for minutes; single requests are bounded by their callers.
    config.connect_timeout = Some(std::time::Duration::from_secs(5));
    Ok(config)
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
}
