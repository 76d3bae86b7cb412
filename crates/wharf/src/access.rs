//! How commands for people reach the cluster.

use std::path::PathBuf;

use clap::Args;
use kube::Client;
use wharf_cluster::{Access, ConnectError};

/// Flags that kubectl has, too.
#[derive(Args)]
pub(crate) struct KubectlArgs {
    /// How to reach the API; else KUBECONFIG, ~/.kube/config or a pod's own account, as kubectl does
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use, if not the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl KubectlArgs {
    pub(crate) async fn client(&self) -> Result<Client, ConnectError> {
        Access::as_kubectl(self.kubeconfig.clone(), self.context.clone()).client().await
    }
}
