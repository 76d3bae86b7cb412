use std::{
    env,
    path::{Path, PathBuf},
};

use http::Uri;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::{
    Permissions, Throttle,
    retry_after::RetryAfterLayer,
    transport::{Transport, transport},
};

/// Why a client cannot be built.
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
    /// No kubeconfig was given, and the process has no service account.
    #[error(
        "no kubeconfig was given, and not running in a pod with a service account: give --kubeconfig"
    )]
    InCluster(#[from] InClusterError),
    /// The text is not the URL of an API server.
    #[error("{0:?} is not the URL of an API server: expected one such as https://10.0.0.1:6443")]
    Server(String),
    /// The kind of proxy is not supported.
    #[error(
        "proxy {0} of proxy-url in the kubeconfig, HTTPS_PROXY or HTTP_PROXY: expected a URL such as http://proxy:3128 or \
         socks5://proxy:1080"
    )]
    Proxy(String),
    /// The kubeconfig's `tls-server-name` is not the name of a server.
    #[error("tls-server-name {0:?} in the kubeconfig: expected a DNS name or an IP address")]
    ServerName(String),
    /// The configuration was rejected.
    #[error("the Kubernetes client cannot be built from its configuration")]
    Client(#[source] Box<kube::Error>),
}

impl From<kube::Error> for ConnectError {
    fn from(error: kube::Error) -> Self {
        Self::Client(Box::new(error))
    }
}

/// Address and credentials of the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    server: Option<Uri>,
    /// Without a kubeconfig, look for one where kubectl does.
    as_kubectl: bool,
}

impl Access {
    /// Reads this kubeconfig file, or without one uses the pod's service account.
    pub fn new(kubeconfig: Option<PathBuf>) -> Self {
        Self { kubeconfig, ..Self::default() }
    }

    /// Reads the same configuration as kubectl: this file, else those of `KUBECONFIG`, else
    /// `~/.kube/config`, and without any of them the pod's service account. `context` replaces the
    /// current context.
    pub fn as_kubectl(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self { kubeconfig, context, server: None, as_kubectl: true }
    }

    /// Replaces the server's URL. Without a kubeconfig the client is anonymous.
    pub fn at(self, server: &str) -> Result<Self, ConnectError> {
        let uri = server.parse::<Uri>().ok();
        let uri = uri.filter(|uri| uri.scheme().is_some() && uri.authority().is_some());
        let server = uri.ok_or_else(|| ConnectError::Server(server.to_owned()))?;
        Ok(Self { server: Some(server), ..self })
    }

    /// Fills settings that are missing here from `other`.
    pub fn or(self, other: Self) -> Self {
        Self {
            kubeconfig: self.kubeconfig.or(other.kubeconfig),
            context: self.context.or(other.context),
            server: self.server.or(other.server),
            as_kubectl: self.as_kubectl || other.as_kubectl,
        }
    }

    /// Builds a client. It does not dial yet.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        client(&self.configuration().await?)
    }

    /// Builds a client that notes missing rights of its account in `permissions`, and throttles its
    /// requests if a limit is given.
    pub async fn client_of(
        &self,
        permissions: &Permissions,
        throttle: Option<Throttle>,
    ) -> Result<Client, ConnectError> {
        let config = self.configuration().await?;
        let builder = builder(&config)?.with_layer(permissions).with_layer(&RetryAfterLayer);
        Ok(match throttle {
            Some(throttle) => builder.with_layer(&throttle).build(),
            None => builder.build(),
        })
    }

    async fn configuration(&self) -> Result<Config, ConnectError> {
        let mut config = match (&self.kubeconfig, &self.server) {
            (Some(path), _) => {
                let unusable = |source| unusable(path, source);
                let file = Kubeconfig::read_from(path).map_err(unusable)?;
                self.configure(file).await.map_err(unusable)?
            }
            (None, Some(server)) => Config::new(server.clone()),
            (None, None) => match self.usual_kubeconfig()? {
                Some((path, file)) => {
                    self.configure(file).await.map_err(|source| unusable(&path, source))?
                }
                None => Config::incluster()?,
            },
        };
        if let Some(server) = &self.server {
            config.cluster_url = server.clone();
        }
        Ok(config)
    }

    /// The kubeconfig that kubectl would read, and the path that errors name.
    fn usual_kubeconfig(&self) -> Result<Option<(PathBuf, Kubeconfig)>, ConnectError> {
        if !self.as_kubectl {
            return Ok(None);
        }
        if let Some(list) = env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
            // Like kubectl, skip files that do not exist.
            let mut merged: Option<Kubeconfig> = None;
            for path in env::split_paths(&list).filter(|path| path.exists()) {
                let unusable = |source| unusable(&path, source);
                let file = Kubeconfig::read_from(&path).map_err(unusable)?;
                merged = Some(match merged {
                    Some(merged) => merged.merge(file).map_err(unusable)?,
                    None => file,
                });
            }
            return Ok(merged.map(|file| (PathBuf::from(list), file)));
        }
        let home = env::home_dir().map(|home| home.join(".kube/config"));
        let Some(path) = home.filter(|path| path.exists()) else { return Ok(None) };
        let file = Kubeconfig::read_from(&path).map_err(|source| unusable(&path, source))?;
        Ok(Some((path, file)))
    }

    async fn configure(&self, file: Kubeconfig) -> Result<Config, KubeconfigError> {
        let context = self.context.clone();
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let proxy = proxy_url(&file, &options)?;
        let mut config = Config::from_custom_kubeconfig(file, &options).await?;
        config.proxy_url = proxy;
        Ok(config)
    }
}

/// Builds a client from a kubeconfig file, or without one from the pod's service account. It does
/// not dial yet.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    Access::new(kubeconfig.map(Path::to_owned)).client().await
}

/// Builds a client whose watches share one connection. When the server asks for a pause, a request
/// waits and is sent again.
pub fn client(config: &Config) -> Result<Client, ConnectError> {
    Ok(builder(config)?.with_layer(&RetryAfterLayer).build())
}

fn builder(config: &Config) -> Result<ClientBuilder<Transport>, ConnectError> {
    Ok(ClientBuilder::new(transport(config)?, &config.default_namespace))
}

fn unusable(path: &Path, source: KubeconfigError) -> ConnectError {
    ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) }
}

/// The kubeconfig's own proxy. The client would mix it with the environment's and drop `NO_PROXY`.
fn proxy_url(
    file: &Kubeconfig,
    options: &KubeConfigOptions,
) -> Result<Option<Uri>, KubeconfigError> {
    let name = options.context.as_ref().or(file.current_context.as_ref());
    let context = file.contexts.iter().find(|it| Some(&it.name) == name);
    let cluster = context.and_then(|it| it.context.as_ref()).map(|it| &it.cluster);
    let cluster = file.clusters.iter().find(|it| Some(&it.name) == cluster);
    let url = cluster.and_then(|it| it.cluster.as_ref()?.proxy_url.clone());
    let url = url.filter(|url| !url.is_empty());
    url.map(|url| url.parse().map_err(KubeconfigError::ParseProxyUrl)).transpose()
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
            let Err(error) = connect(Some(&path)).await else { panic!("{path:?} was accepted") };
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }

    #[tokio::test]
    async fn a_server_takes_the_place_of_the_kubeconfig_s() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let text = r#"{"clusters":[{"name":"a","cluster":{"server":"https://a:1"}}],
            "users":[{"name":"a","user":{"token":"t"}}],
            "contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"current-context":"a"}"#;
        std::fs::write(&path, text).unwrap();
        for (kubeconfig, server, wanted) in [
            (Some(&path), None, "https://a:1/"),
            (Some(&path), Some("https://b:2"), "https://b:2/"),
            (None, Some("http://b:2/base"), "http://b:2/base"),
        ] {
            let mut access = Access::new(kubeconfig.cloned());
            if let Some(server) = server {
                access = access.at(server).unwrap();
            }
            let config = access.configuration().await.unwrap();
            assert_eq!(config.cluster_url, wanted);
            assert_eq!(config.auth_info.token.is_some(), kubeconfig.is_some());
        }
        for text in ["", "10.0.0.1", "https://", "a b"] {
            let error = Access::default().at(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not the URL")), "{error}");
        }
    }

    #[test]
    fn a_way_to_the_server_that_there_is_not_is_named() {
        let config = |change: fn(&mut Config)| {
            let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
            change(&mut config);
            let Err(error) = client(&config) else { panic!("it was accepted") };
            error.to_string()
        };
        let error = config(|it| it.tls_server_name = Some("no name".to_owned()));
        assert!(error.starts_with("tls-server-name \"no name\" in the kubeconfig"), "{error}");
    }
}
