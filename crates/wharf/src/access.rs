//! Flags of commands for people that reach the cluster.

use std::path::PathBuf;

use clap::Args;
use kube::Client;
use wharf_cluster::{Access, ConnectError};

/// Flags with the same meaning as in kubectl.
#[derive(Args)]
pub(crate) struct KubectlArgs {
    /// Path of a kubeconfig file. Default, as in kubectl: KUBECONFIG, ~/.kube/config or the pod's
    /// service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current context
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl KubectlArgs {
    pub(crate) async fn client(&self) -> Result<Client, ConnectError> {
        Access::as_kubectl(self.kubeconfig.clone(), self.context.clone()).client().await
    }
}
